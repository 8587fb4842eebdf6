/* GASNet-1: collectives on images and teams. Every rank has one image, so the image of a rank is its rank in the team. */
#ifndef GASNET_IBV_GASNET1_COLL_H
#define GASNET_IBV_GASNET1_COLL_H 1

#include "am.h"
#include "barrier.h"
#include "event.h"
#include "world.h"

GEXI_BEGIN_C

/* Any team is one; handles are events. */
typedef uint32_t gasnet_image_t;
typedef gex_TM_t gasnet_team_handle_t;
typedef gex_Event_t gasnet_coll_handle_t;
#define GASNET_TEAM_ALL (gexi_world.tm0)
#define GASNET_COLL_INVALID_HANDLE GEX_EVENT_INVALID

/* Exactly one of each three. IN: data may be read and written from when any member, this member, or all members have begun
 * the call. OUT: the call is complete when this member may go on, when its own data has moved, or when all data has. */
#define GASNET_COLL_IN_NOSYNC (1 << 0)
#define GASNET_COLL_IN_MYSYNC (1 << 1)
#define GASNET_COLL_IN_ALLSYNC (1 << 2)
#define GASNET_COLL_OUT_NOSYNC (1 << 3)
#define GASNET_COLL_OUT_MYSYNC (1 << 4)
#define GASNET_COLL_OUT_ALLSYNC (1 << 5)
#define GASNET_COLL_SYNC_FLAG_MASK 0x3f
/* Addresses are those of each image alone, which is also meant without a flag; or the same ones on all. */
#define GASNET_COLL_SINGLE (1 << 6)
#define GASNET_COLL_LOCAL (1 << 7)
/* What is promised of threads, segments and tuning: memory may be anywhere, and there is one image. */
#define GASNET_COLL_FIXED_THREADS_PER_NODE (1 << 9)
#define GASNET_COLL_DST_IN_SEGMENT (1 << 10)
#define GASNET_COLL_SRC_IN_SEGMENT (1 << 11)
#define GASNET_COLL_DISABLE_AUTOTUNE (1 << 18)
#define GASNET_COLL_NO_IMAGES (1 << 19)
/* Of functions of reductions. */
#define GASNET_COLL_AMSAFE (1 << 0)
#define GASNET_COLL_NONCOMM (1 << 1)

/* `nbytes` of the image `srcimage` to all. */
GEXI_API gex_Event_t gasnet_coll_broadcast_nb(gasnet_team_handle_t team, void *dst, gasnet_image_t srcimage,
                                              const void *src, size_t nbytes, int flags);
/* Of the image `srcimage` `nbytes` to each, in their order. */
GEXI_API gex_Event_t gasnet_coll_scatter_nb(gasnet_team_handle_t team, void *dst, gasnet_image_t srcimage,
                                            const void *src, size_t nbytes, int flags);
/* `nbytes` of each to the image `dstimage`, or to all, in their order. */
GEXI_API gex_Event_t gasnet_coll_gather_nb(gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst,
                                           const void *src, size_t nbytes, int flags);
GEXI_API gex_Event_t gasnet_coll_gather_all_nb(gasnet_team_handle_t team, void *dst, const void *src, size_t nbytes,
                                               int flags);
/* `nbytes` of each to each: block j of image i becomes block i of image j. Source and destination do not overlap. */
GEXI_API gex_Event_t gasnet_coll_exchange_nb(gasnet_team_handle_t team, void *dst, const void *src, size_t nbytes,
                                             int flags);

GEXI_INLINE void gasnet_coll_broadcast(gasnet_team_handle_t team, void *dst, gasnet_image_t srcimage, const void *src,
                                       size_t nbytes, int flags)
{
    gex_Event_Wait(gasnet_coll_broadcast_nb(team, dst, srcimage, src, nbytes, flags));
}

GEXI_INLINE void gasnet_coll_scatter(gasnet_team_handle_t team, void *dst, gasnet_image_t srcimage, const void *src,
                                     size_t nbytes, int flags)
{
    gex_Event_Wait(gasnet_coll_scatter_nb(team, dst, srcimage, src, nbytes, flags));
}

GEXI_INLINE void gasnet_coll_gather(gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst, const void *src,
                                    size_t nbytes, int flags)
{
    gex_Event_Wait(gasnet_coll_gather_nb(team, dstimage, dst, src, nbytes, flags));
}

GEXI_INLINE void gasnet_coll_gather_all(gasnet_team_handle_t team, void *dst, const void *src, size_t nbytes, int flags)
{
    gex_Event_Wait(gasnet_coll_gather_all_nb(team, dst, src, nbytes, flags));
}

GEXI_INLINE void gasnet_coll_exchange(gasnet_team_handle_t team, void *dst, const void *src, size_t nbytes, int flags)
{
    gex_Event_Wait(gasnet_coll_exchange_nb(team, dst, src, nbytes, flags));
}

/* Handles. A try polls once: 0 or GASNET_ERR_NOT_READY. */
GEXI_INLINE int gasnet_coll_try_sync(gasnet_coll_handle_t handle)
{
    if (handle != GASNET_COLL_INVALID_HANDLE) (void)gasnet_AMPoll();
    return gex_Event_Test(handle);
}

GEXI_INLINE int gasnet_coll_try_sync_some(gasnet_coll_handle_t *handles, size_t count)
{
    (void)gasnet_AMPoll();
    return gex_Event_TestSome(handles, count, 0);
}

GEXI_INLINE int gasnet_coll_try_sync_all(gasnet_coll_handle_t *handles, size_t count)
{
    (void)gasnet_AMPoll();
    return gex_Event_TestAll(handles, count, 0);
}

GEXI_INLINE void gasnet_coll_wait_sync(gasnet_coll_handle_t handle)
{
    gex_Event_Wait(handle);
}

GEXI_INLINE void gasnet_coll_wait_sync_some(gasnet_coll_handle_t *handles, size_t count)
{
    gex_Event_WaitSome(handles, count, 0);
}

GEXI_INLINE void gasnet_coll_wait_sync_all(gasnet_coll_handle_t *handles, size_t count)
{
    gex_Event_WaitAll(handles, count, 0);
}

/* As gasnet_barrier_*, which they are on the team of all ranks. On other teams one at a time for each team. */
GEXI_API void gasnet_coll_barrier_notify(gasnet_team_handle_t team, int id, int flags);
GEXI_API int gasnet_coll_barrier_try(gasnet_team_handle_t team, int id, int flags);
GEXI_API int gasnet_coll_barrier_wait(gasnet_team_handle_t team, int id, int flags);
GEXI_API int gasnet_coll_barrier(gasnet_team_handle_t team, int id, int flags);
GEXI_API int gasnet_coll_barrier_result(gasnet_team_handle_t team, int *id);

/* Tuning. Collectives are chosen by the size of team and data alone: there is one class of trees, no state to load, and
 * nothing to write. */
typedef enum {
    GASNET_COLL_BROADCAST_OP = 0,
    GASNET_COLL_SCATTER_OP,
    GASNET_COLL_GATHER_OP,
    GASNET_COLL_GATHER_ALL_OP,
    GASNET_COLL_EXCHANGE_OP,
    GASNET_COLL_NUM_COLL_OPTYPES
} gasnet_coll_optype_t;
typedef enum {
    GASNET_COLL_PIPE_SEG_SIZE,
    GASNET_COLL_DISSEM_RADIX,
    GASNET_COLL_TREE_TYPE,
    GASNET_COLL_NUM_PARAM_TYPES
} gasnet_coll_tuning_param_type_t;
typedef void (*gasnet_coll_overlap_sample_work_t)(void *arg);
#define gasnet_coll_loadTuningState(filename, team) ((void)(filename), (void)(team))
#define gasnet_coll_dumpTuningState(filename, team) ((void)(filename), (void)(team))
#define gasnet_coll_dumpProfile(filename, team) ((void)(filename), (void)(team))

GEXI_INLINE int gasnet_coll_get_num_tree_classes(gasnet_team_handle_t team, gasnet_coll_optype_t optype)
{
    (void)team;
    (void)optype;
    return 1;
}

GEXI_INLINE void gasnet_coll_set_tree_kind(gasnet_team_handle_t team, int tree_type, int fanout,
                                           gasnet_coll_optype_t optype)
{
    (void)team;
    (void)tree_type;
    (void)fanout;
    (void)optype;
}

GEXI_INLINE void gasnet_coll_set_dissem_limit(gasnet_team_handle_t team, size_t limit, gasnet_coll_optype_t optype)
{
    (void)team;
    (void)limit;
    (void)optype;
}

GEXI_END_C
#endif
