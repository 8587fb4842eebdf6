/* GASNet-1: types and calls, all expressed over tm0 of the one client. Enabled by gasnet_init, or by
 * GEX_FLAG_USES_GASNET1 at gex_Client_Init. */
#ifndef GASNET_IBV_GASNET1_H
#define GASNET_IBV_GASNET1_H 1

#include "../gasnetex.h"

#define GASNET_SPEC_VERSION_MAJOR 1
#define GASNET_SPEC_VERSION_MINOR 8
#define GASNET_VERSION GASNET_SPEC_VERSION_MAJOR

GEXI_BEGIN_C

typedef gex_Rank_t gasnet_node_t;
typedef gex_Token_t gasnet_token_t;
typedef gex_AM_Index_t gasnet_handler_t;
typedef gex_AM_Arg_t gasnet_handlerarg_t;
typedef gex_RMA_Value_t gasnet_register_value_t;
#define SIZEOF_GASNET_REGISTER_VALUE_T SIZEOF_GEX_RMA_VALUE_T
typedef gex_Event_t gasnet_handle_t;
#define GASNET_INVALID_HANDLE GEX_EVENT_INVALID
/* A value that has been fetched already: within a host a get is done when it returns. */
typedef gasnet_register_value_t gasnet_valget_handle_t;

typedef struct {
    void *addr;
    size_t len;
} gasnet_memvec_t;

typedef struct {
    gasnet_handler_t index; /* 0: the library chooses and writes back */
    void (*fnptr)();
} gasnet_handlerentry_t;

/* The name carries mode and ABI version, as that of gex_Client_Init. */
#define gasnet_init GEXI_ABI_NAME(gexi_gasnet_init)
GEXI_API int gasnet_init(int *argc, char ***argv);
GEXI_API int gasnet_attach(gasnet_handlerentry_t *table, int numentries, uintptr_t segsize, uintptr_t minheapoffset);
/* Each output may be null. After attach. */
GEXI_API void gasnet_QueryGexObjects(gex_Client_t *client_p, gex_EP_t *ep_p, gex_TM_t *tm_p, gex_Segment_t *segment_p);

#define gasnet_mynode() gex_System_QueryJobRank()
#define gasnet_nodes() gex_System_QueryJobSize()

GEXI_INLINE int gasnet_AMGetMsgSource(gasnet_token_t token, gasnet_node_t *source)
{
    gex_Token_Info_t info;
    if (!source || !(gex_Token_Info(token, &info, GEX_TI_SRCRANK) & GEX_TI_SRCRANK)) return GASNET_ERR_BAD_ARG;
    *source = info.gex_srcrank;
    return GASNET_OK;
}

#define gasnet_AMMaxArgs() ((size_t)gex_AM_MaxArgs())

GEXI_INLINE size_t gasnet_AMMaxMedium(void)
{
    size_t request = gex_AM_LUBRequestMedium(), reply = gex_AM_LUBReplyMedium();
    return request < reply ? request : reply;
}

GEXI_INLINE size_t gasnet_AMMaxLongRequest(void)
{
    return gex_AM_LUBRequestLong();
}

GEXI_INLINE size_t gasnet_AMMaxLongReply(void)
{
    return gex_AM_LUBReplyLong();
}

/* A message whose stated number of arguments is not the number given: names the call, GASNET_ERR_BAD_ARG. */
GEXI_API int gexi1_wrong_count(const char *call, int stated, int given);

/* Locks. Handlers do not interrupt, so there is nothing to hold. */
typedef gex_HSL_t gasnet_hsl_t;
#define GASNET_HSL_INITIALIZER GEX_HSL_INITIALIZER
#define gasnet_hsl_init(hsl) gex_HSL_Init(hsl)
#define gasnet_hsl_destroy(hsl) gex_HSL_Destroy(hsl)
#define gasnet_hsl_lock(hsl) gex_HSL_Lock(hsl)
#define gasnet_hsl_unlock(hsl) gex_HSL_Unlock(hsl)
#define gasnet_hsl_trylock(hsl) gex_HSL_Trylock(hsl)
#define gasnet_hold_interrupts() ((void)0)
#define gasnet_resume_interrupts() ((void)0)

/* Put and get. The plain forms let the source be used again on return; the bulk forms not before completion. */
GEXI_INLINE void gasnet_put(gasnet_node_t node, void *dest, const void *src, size_t nbytes)
{
    (void)gex_RMA_PutBlocking(gexi_world.tm0, node, dest, src, nbytes, 0);
}

GEXI_INLINE void gasnet_put_bulk(gasnet_node_t node, void *dest, const void *src, size_t nbytes)
{
    (void)gex_RMA_PutBlocking(gexi_world.tm0, node, dest, src, nbytes, 0);
}

GEXI_INLINE void gasnet_get(void *dest, gasnet_node_t node, const void *src, size_t nbytes)
{
    (void)gex_RMA_GetBlocking(gexi_world.tm0, dest, node, src, nbytes, 0);
}

GEXI_INLINE void gasnet_get_bulk(void *dest, gasnet_node_t node, const void *src, size_t nbytes)
{
    (void)gex_RMA_GetBlocking(gexi_world.tm0, dest, node, src, nbytes, 0);
}

GEXI_INLINE gasnet_handle_t gasnet_put_nb(gasnet_node_t node, void *dest, const void *src, size_t nbytes)
{
    return gex_RMA_PutNB(gexi_world.tm0, node, dest, src, nbytes, GEX_EVENT_NOW, 0);
}

GEXI_INLINE gasnet_handle_t gasnet_put_nb_bulk(gasnet_node_t node, void *dest, const void *src, size_t nbytes)
{
    return gex_RMA_PutNB(gexi_world.tm0, node, dest, src, nbytes, GEX_EVENT_DEFER, 0);
}

GEXI_INLINE gasnet_handle_t gasnet_get_nb(void *dest, gasnet_node_t node, const void *src, size_t nbytes)
{
    return gex_RMA_GetNB(gexi_world.tm0, dest, node, src, nbytes, 0);
}

GEXI_INLINE gasnet_handle_t gasnet_get_nb_bulk(void *dest, gasnet_node_t node, const void *src, size_t nbytes)
{
    return gex_RMA_GetNB(gexi_world.tm0, dest, node, src, nbytes, 0);
}

GEXI_INLINE void gasnet_put_nbi(gasnet_node_t node, void *dest, const void *src, size_t nbytes)
{
    (void)gex_RMA_PutNBI(gexi_world.tm0, node, dest, src, nbytes, GEX_EVENT_NOW, 0);
}

GEXI_INLINE void gasnet_put_nbi_bulk(gasnet_node_t node, void *dest, const void *src, size_t nbytes)
{
    (void)gex_RMA_PutNBI(gexi_world.tm0, node, dest, src, nbytes, GEX_EVENT_DEFER, 0);
}

GEXI_INLINE void gasnet_get_nbi(void *dest, gasnet_node_t node, const void *src, size_t nbytes)
{
    (void)gex_RMA_GetNBI(gexi_world.tm0, dest, node, src, nbytes, 0);
}

GEXI_INLINE void gasnet_get_nbi_bulk(void *dest, gasnet_node_t node, const void *src, size_t nbytes)
{
    (void)gex_RMA_GetNBI(gexi_world.tm0, dest, node, src, nbytes, 0);
}

/* Values of 1 to 8 bytes. */
GEXI_INLINE void gasnet_put_val(gasnet_node_t node, void *dest, gasnet_register_value_t value, size_t nbytes)
{
    (void)gex_RMA_PutBlockingVal(gexi_world.tm0, node, dest, value, nbytes, 0);
}

GEXI_INLINE gasnet_handle_t gasnet_put_nb_val(gasnet_node_t node, void *dest, gasnet_register_value_t value,
                                              size_t nbytes)
{
    return gex_RMA_PutNBVal(gexi_world.tm0, node, dest, value, nbytes, 0);
}

GEXI_INLINE void gasnet_put_nbi_val(gasnet_node_t node, void *dest, gasnet_register_value_t value, size_t nbytes)
{
    (void)gex_RMA_PutNBIVal(gexi_world.tm0, node, dest, value, nbytes, 0);
}

GEXI_INLINE gasnet_register_value_t gasnet_get_val(gasnet_node_t node, const void *src, size_t nbytes)
{
    return gex_RMA_GetBlockingVal(gexi_world.tm0, node, src, nbytes, 0);
}

GEXI_INLINE gasnet_valget_handle_t gasnet_get_nb_val(gasnet_node_t node, const void *src, size_t nbytes)
{
    return gex_RMA_GetBlockingVal(gexi_world.tm0, node, src, nbytes, 0);
}

GEXI_INLINE gasnet_register_value_t gasnet_wait_syncnb_valget(gasnet_valget_handle_t handle)
{
    return handle;
}

/* Memset of remote memory. */
GEXI_API void gexi_RMA_Memset(gex_TM_t tm, gex_Rank_t rank, void *dest, int value, size_t nbytes);

GEXI_INLINE void gasnet_memset(gasnet_node_t node, void *dest, int value, size_t nbytes)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(gexi_world.tm0, node, dest, nbytes, &at))) {
        gexi_RMA_Memset(gexi_world.tm0, node, dest, value, nbytes);
        return;
    }
    memset(GEXI_HERE(at), value, nbytes);
    GEXI_ORDER();
}

GEXI_INLINE gasnet_handle_t gasnet_memset_nb(gasnet_node_t node, void *dest, int value, size_t nbytes)
{
    gasnet_memset(node, dest, value, nbytes);
    return GASNET_INVALID_HANDLE;
}

GEXI_INLINE void gasnet_memset_nbi(gasnet_node_t node, void *dest, int value, size_t nbytes)
{
    gasnet_memset(node, dest, value, nbytes);
}

/* Synchronization. A try polls once; its nopoll form does not. */
GEXI_INLINE void gasnet_wait_syncnb(gasnet_handle_t handle)
{
    gex_Event_Wait(handle);
}

GEXI_INLINE void gasnet_wait_syncnb_some(gasnet_handle_t *handles, size_t count)
{
    gex_Event_WaitSome(handles, count, 0);
}

GEXI_INLINE void gasnet_wait_syncnb_all(gasnet_handle_t *handles, size_t count)
{
    gex_Event_WaitAll(handles, count, 0);
}

GEXI_INLINE int gasnet_try_syncnb_nopoll(gasnet_handle_t handle)
{
    return gex_Event_Test(handle);
}

GEXI_INLINE int gasnet_try_syncnb_some_nopoll(gasnet_handle_t *handles, size_t count)
{
    return gex_Event_TestSome(handles, count, 0);
}

GEXI_INLINE int gasnet_try_syncnb_all_nopoll(gasnet_handle_t *handles, size_t count)
{
    return gex_Event_TestAll(handles, count, 0);
}

GEXI_INLINE int gasnet_try_syncnb(gasnet_handle_t handle)
{
    (void)gasnet_AMPoll();
    return gex_Event_Test(handle);
}

GEXI_INLINE int gasnet_try_syncnb_some(gasnet_handle_t *handles, size_t count)
{
    (void)gasnet_AMPoll();
    return gex_Event_TestSome(handles, count, 0);
}

GEXI_INLINE int gasnet_try_syncnb_all(gasnet_handle_t *handles, size_t count)
{
    (void)gasnet_AMPoll();
    return gex_Event_TestAll(handles, count, 0);
}

GEXI_INLINE void gasnet_wait_syncnbi_gets(void)
{
    gex_NBI_Wait(GEX_EC_GET, 0);
}

GEXI_INLINE void gasnet_wait_syncnbi_puts(void)
{
    gex_NBI_Wait(GEX_EC_PUT, 0);
}

GEXI_INLINE void gasnet_wait_syncnbi_all(void)
{
    gex_NBI_Wait(GEX_EC_PUT | GEX_EC_GET, 0);
}

GEXI_INLINE int gasnet_try_syncnbi_gets_nopoll(void)
{
    return gex_NBI_Test(GEX_EC_GET, 0);
}

GEXI_INLINE int gasnet_try_syncnbi_puts_nopoll(void)
{
    return gex_NBI_Test(GEX_EC_PUT, 0);
}

GEXI_INLINE int gasnet_try_syncnbi_all_nopoll(void)
{
    return gex_NBI_Test(GEX_EC_PUT | GEX_EC_GET, 0);
}

GEXI_INLINE int gasnet_try_syncnbi_gets(void)
{
    (void)gasnet_AMPoll();
    return gasnet_try_syncnbi_gets_nopoll();
}

GEXI_INLINE int gasnet_try_syncnbi_puts(void)
{
    (void)gasnet_AMPoll();
    return gasnet_try_syncnbi_puts_nopoll();
}

GEXI_INLINE int gasnet_try_syncnbi_all(void)
{
    (void)gasnet_AMPoll();
    return gasnet_try_syncnbi_all_nopoll();
}

GEXI_INLINE void gasnet_begin_nbi_accessregion(void)
{
    gex_NBI_BeginAccessRegion(0);
}

GEXI_INLINE gasnet_handle_t gasnet_end_nbi_accessregion(void)
{
    return gex_NBI_EndAccessRegion(0);
}

GEXI_END_C

#include "gasnet1_am_generated.h"

#endif
