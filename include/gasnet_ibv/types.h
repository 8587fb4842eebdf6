/* Objects, structures and constants of gasnetex.h. */
#ifndef GASNET_IBV_TYPES_H
#define GASNET_IBV_TYPES_H 1

#include <stddef.h>
#include <stdint.h>

#include "config.h"

/* Objects: pointers to structures that only the library knows. A TM-pair is a tagged value of type gex_TM_t. */
typedef struct gexi_client_s *gex_Client_t;
typedef struct gexi_ep_s *gex_EP_t;
typedef struct gexi_tm_s *gex_TM_t;
typedef struct gexi_segment_s *gex_Segment_t;
typedef struct gexi_token_s *gex_Token_t;
typedef struct gexi_srcdesc_s *gex_AM_SrcDesc_t;
typedef struct gexi_mk_s *gex_MK_t;
typedef struct gexi_ad_s *gex_AD_t;

#define GEX_CLIENT_INVALID ((gex_Client_t)(uintptr_t)0)
#define GEX_EP_INVALID ((gex_EP_t)(uintptr_t)0)
#define GEX_TM_INVALID ((gex_TM_t)(uintptr_t)0)
#define GEX_SEGMENT_INVALID ((gex_Segment_t)(uintptr_t)0)
#define GEX_MK_INVALID ((gex_MK_t)(uintptr_t)0)
#define GEX_AD_INVALID ((gex_AD_t)(uintptr_t)0)
#define GEX_AM_SRCDESC_NO_OP ((gex_AM_SrcDesc_t)(uintptr_t)0)
#define GEX_MK_HOST ((gex_MK_t)(uintptr_t)1)

/* Promises about the target of a put or get. Plain constants, so that #if can use them. */
#define GEX_FLAG_PEER_NEVER_NBRHD (1U << 14)
#define GEX_FLAG_PEER_NEVER_SELF (1U << 15)

/* Active messages. */
typedef uint8_t gex_AM_Index_t;
typedef int32_t gex_AM_Arg_t;
typedef void (*gex_AM_Fn_t)();

typedef struct {
    gex_AM_Index_t gex_index; /* 0: the library chooses and writes back */
    gex_AM_Fn_t gex_fnptr;
    gex_Flags_t gex_flags;  /* category | request or reply */
    unsigned int gex_nargs; /* exact number of arguments, 0..16 */
    const void *gex_cdata;  /* of the client; stored by pointer */
    const char *gex_name;   /* for diagnostics; stored by pointer */
} gex_AM_Entry_t;

/* What gex_Token_Info fills in. */
typedef unsigned int gex_TI_t;
#define GEX_TI_SRCRANK (1U << 0)
#define GEX_TI_ENTRY (1U << 1)
#define GEX_TI_IS_REQ (1U << 2)
#define GEX_TI_IS_LONG (1U << 3)
#define GEX_TI_EP (1U << 4)
#define GEX_TI_ALL (GEX_TI_SRCRANK | GEX_TI_ENTRY | GEX_TI_IS_REQ | GEX_TI_IS_LONG | GEX_TI_EP)

typedef struct {
    gex_Rank_t gex_srcrank; /* the sender's rank in the job */
    gex_EP_t gex_ep;        /* the receiving endpoint */
    const gex_AM_Entry_t *gex_entry;
    int gex_is_req;
    int gex_is_long;
} gex_Token_Info_t;

/* Groups of operations for implicit synchronization and leaf events. A put includes its local completion. */
typedef unsigned int gex_EC_t;
#define GEX_EC_LC 2U
#define GEX_EC_AM 2U
#define GEX_EC_PUT 3U
#define GEX_EC_GET 4U
#define GEX_EC_RMW 8U
#define GEX_EC_ALL (~0U)

/* Memory. */
typedef uint64_t gex_RMA_Value_t;

typedef struct {
    void *gex_addr;
    size_t gex_len;
} gex_Memvec_t;

/* System. */
typedef const struct {
    gex_Rank_t gex_jobrank;
} gex_RankInfo_t;

typedef struct {
    const char *gex_device_list;
    unsigned int gex_thread_roles;
    void *(*gex_progress_fn)(void *);
    void *gex_progress_arg;
} gex_ProgressThreadInfo_t;
#define GEX_THREAD_ROLE_RCV 1U
#define GEX_THREAD_ROLE_SND 2U

typedef struct {
    void *addr;
    uintptr_t size;
} gasnet_seginfo_t;

typedef struct {
    gex_Rank_t host;      /* equal on ranks of one host */
    gex_Rank_t supernode; /* equal on ranks of one neighbourhood */
    uintptr_t offset;     /* added to an address of that rank gives the local one */
    uintptr_t gexi_reserved;
} gasnet_nodeinfo_t;

/* Error codes. */
#define GASNET_OK 0
#define GASNET_ERR_NOT_INIT 10001
#define GASNET_ERR_RESOURCE 10002
#define GASNET_ERR_BAD_ARG 10003
#define GASNET_ERR_NOT_READY 10004
#define GASNET_ERR_BARRIER_MISMATCH 10005

#endif
