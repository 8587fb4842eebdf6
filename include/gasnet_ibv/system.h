/* Client, job and host queries, errors, environment, exit. */
#ifndef GASNET_IBV_SYSTEM_H
#define GASNET_IBV_SYSTEM_H 1

#include "types.h"
#include "world.h"

GEXI_BEGIN_C

/* Joins the job. Collective over all processes, once in a process. The name carries mode and ABI version, so that a
 * library of another mode does not link. */
#define gex_Client_Init GEXI_ABI_NAME(gexi_client_init)
GEXI_API int gex_Client_Init(gex_Client_t *client_p, gex_EP_t *ep_p, gex_TM_t *tm_p, const char *client_name,
                             int *argc, char ***argv, gex_Flags_t flags);

GEXI_API gex_Flags_t gex_Client_QueryFlags(gex_Client_t client);
GEXI_API const char *gex_Client_QueryName(gex_Client_t client);
GEXI_API void gex_Client_SetCData(gex_Client_t client, const void *cdata);
GEXI_API void *gex_Client_QueryCData(gex_Client_t client);

/* Job. */
GEXI_API gex_Rank_t gexi_System_QueryJobRank(void);
GEXI_API gex_Rank_t gexi_System_QueryJobSize(void);

GEXI_INLINE gex_Rank_t gex_System_QueryJobRank(void)
{
    return GEXI_LIKELY(gexi_world.size) ? gexi_world.rank : gexi_System_QueryJobRank();
}

GEXI_INLINE gex_Rank_t gex_System_QueryJobSize(void)
{
    return GEXI_LIKELY(gexi_world.size) ? gexi_world.size : gexi_System_QueryJobSize();
}

/* Ranks that share memory with this one, and ranks of this host. Each output may be null. The arrays belong to the
 * library, do not change, and are sorted. */
GEXI_API void gex_System_QueryNbrhdInfo(gex_RankInfo_t **info_p, gex_Rank_t *count_p, gex_Rank_t *my_index_p);
GEXI_API void gex_System_QueryHostInfo(gex_RankInfo_t **info_p, gex_Rank_t *count_p, gex_Rank_t *my_index_p);
GEXI_API void gex_System_QueryMyPosition(gex_Rank_t *nbrhd_set_size, gex_Rank_t *nbrhd_set_rank,
                                         gex_Rank_t *host_set_size, gex_Rank_t *host_set_rank);

GEXI_API int gex_System_GetVerboseErrors(void);
GEXI_API void gex_System_SetVerboseErrors(int enable);
GEXI_API uint64_t gex_System_QueryMaxThreads(void);
GEXI_API int gex_System_QueryHiddenAMConcurrencyLevel(void);
GEXI_API int gex_System_QueryProgressThreads(gex_Client_t client, unsigned int *count_p,
                                             const gex_ProgressThreadInfo_t **info_p, gex_Flags_t flags);

/* Errors: spelling and text of a code; legal at any time. */
GEXI_API const char *gasnet_ErrorName(int code);
GEXI_API const char *gasnet_ErrorDesc(int code);

/* Ends the whole job; from any thread, handler or signal handler. */
GEXI_API void gasnet_exit(int code) GEXI_NORETURN;

/* Value of the job's environment, or null. Not to be changed or freed. */
GEXI_API char *gasnet_getenv(const char *name);

/* Segments and places of all ranks: fills the smaller of `count` and the size of the job. */
GEXI_API int gasnet_getSegmentInfo(gasnet_seginfo_t *table, int count);
GEXI_API int gasnet_getNodeInfo(gasnet_nodeinfo_t *table, int count);

/* Largest segment here, and the least of these over all ranks, in bytes. */
GEXI_API uintptr_t gasnet_getMaxLocalSegmentSize(void);
GEXI_API uintptr_t gasnet_getMaxGlobalSegmentSize(void);

/* A client may define the first two itself, before init, to change the default limit. */
GEXI_API const char *gasnet_max_segsize_str;
GEXI_API uint64_t gasnet_max_segsize;
/* Called during attach with the new segment, when not null. */
GEXI_API void (*gasnet_client_attach_hook)(void *base, uintptr_t size);

GEXI_END_C
#endif
