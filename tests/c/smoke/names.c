/* The calls that programs of others are known to use, by address: each must be a function that the library or a header
 * has, in every mode. */
#include <gasnet.h>
#include <gasnetex.h>

#include <gasnet_coll.h>
#include <gasnet_mk.h>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>

#include <stdio.h>

#define NAME(name) (void (*)(void))name,
#define FAMILY(name)                                                                                                 \
    NAME(name##0) NAME(name##1) NAME(name##2) NAME(name##3) NAME(name##4) NAME(name##5) NAME(name##6) NAME(name##7)  \
        NAME(name##8) NAME(name##9) NAME(name##10) NAME(name##11) NAME(name##12) NAME(name##13) NAME(name##14)       \
            NAME(name##15) NAME(name##16)

static void (*const calls[])(void) = {
    /* clang-format off */
    /* GASNet-EX */
    NAME(gasnet_AMPoll) NAME(gasnet_ErrorDesc) NAME(gasnet_ErrorName) NAME(gasnet_barrier)
    NAME(gasnet_barrier_notify) NAME(gasnet_barrier_result) NAME(gasnet_barrier_try) NAME(gasnet_barrier_wait)
    NAME(gasnet_exit) NAME(gasnet_getMaxGlobalSegmentSize) NAME(gasnet_getMaxLocalSegmentSize)
    NAME(gasnet_getenv) NAME(gasnet_set_waitmode) NAME(gex_AD_Create) NAME(gex_AD_Destroy)
    NAME(gex_AD_OpNBI_DBL) NAME(gex_AD_OpNBI_FLT) NAME(gex_AD_OpNBI_I32) NAME(gex_AD_OpNBI_I64)
    NAME(gex_AD_OpNBI_U32) NAME(gex_AD_OpNBI_U64) NAME(gex_AD_OpNB_DBL) NAME(gex_AD_OpNB_FLT)
    NAME(gex_AD_OpNB_I32) NAME(gex_AD_OpNB_I64) NAME(gex_AD_OpNB_U32) NAME(gex_AD_OpNB_U64)
    NAME(gex_AD_QueryCData) NAME(gex_AD_QueryDT) NAME(gex_AD_QueryFlags) NAME(gex_AD_QueryOps)
    NAME(gex_AD_QueryTM) NAME(gex_AD_SetCData) NAME(gex_AM_CancelReplyLong) NAME(gex_AM_CancelReplyMedium)
    NAME(gex_AM_CancelRequestLong) NAME(gex_AM_CancelRequestMedium) NAME(gex_AM_LUBReplyLong)
    NAME(gex_AM_LUBReplyMedium) NAME(gex_AM_LUBRequestLong) NAME(gex_AM_LUBRequestMedium) NAME(gex_AM_MaxArgs)
    NAME(gex_AM_MaxReplyLong) NAME(gex_AM_MaxReplyMedium) NAME(gex_AM_MaxRequestLong)
    NAME(gex_AM_MaxRequestMedium) NAME(gex_AM_PrepareReplyLong) NAME(gex_AM_PrepareReplyMedium)
    NAME(gex_AM_PrepareRequestLong) NAME(gex_AM_PrepareRequestMedium) NAME(gex_AM_SrcDescAddr)
    NAME(gex_AM_SrcDescSize) NAME(gex_Client_Init) NAME(gex_Client_QueryCData) NAME(gex_Client_QueryFlags)
    NAME(gex_Client_QueryName) NAME(gex_Client_SetCData) NAME(gex_Coll_BarrierBlocking) NAME(gex_Coll_BarrierNB)
    NAME(gex_Coll_BroadcastNB) NAME(gex_Coll_ReduceToAllNB) NAME(gex_Coll_ReduceToOneNB)
    NAME(gex_EP_BindSegment) NAME(gex_EP_Create) NAME(gex_EP_PublishBoundSegment)
    NAME(gex_EP_QueryBoundSegmentNB) NAME(gex_EP_QueryCData) NAME(gex_EP_QueryClient) NAME(gex_EP_QueryIndex)
    NAME(gex_EP_QuerySegment) NAME(gex_EP_RegisterHandlers) NAME(gex_EP_SetCData) NAME(gex_Event_QueryLeaf)
    NAME(gex_Event_Test) NAME(gex_Event_TestAll) NAME(gex_Event_TestSome) NAME(gex_Event_Wait)
    NAME(gex_Event_WaitAll) NAME(gex_Event_WaitSome) NAME(gex_HSL_Destroy) NAME(gex_HSL_Init) NAME(gex_HSL_Lock)
    NAME(gex_HSL_Trylock) NAME(gex_HSL_Unlock) NAME(gex_NBI_BeginAccessRegion) NAME(gex_NBI_EndAccessRegion)
    NAME(gex_NBI_Test) NAME(gex_NBI_Wait) NAME(gex_RMA_GetBlocking) NAME(gex_RMA_GetBlockingVal)
    NAME(gex_RMA_GetNB) NAME(gex_RMA_GetNBI) NAME(gex_RMA_PutBlocking) NAME(gex_RMA_PutBlockingVal)
    NAME(gex_RMA_PutNB) NAME(gex_RMA_PutNBI) NAME(gex_RMA_PutNBIVal) NAME(gex_RMA_PutNBVal)
    NAME(gex_Segment_Attach) NAME(gex_Segment_Create) NAME(gex_Segment_Destroy) NAME(gex_Segment_QueryAddr)
    NAME(gex_Segment_QueryBound) NAME(gex_Segment_QueryCData) NAME(gex_Segment_QueryClient)
    NAME(gex_Segment_QuerySize) NAME(gex_Segment_SetCData) NAME(gex_System_GetVerboseErrors)
    NAME(gex_System_QueryHiddenAMConcurrencyLevel) NAME(gex_System_QueryHostInfo) NAME(gex_System_QueryJobRank)
    NAME(gex_System_QueryJobSize) NAME(gex_System_QueryMaxThreads) NAME(gex_System_QueryMyPosition)
    NAME(gex_System_QueryNbrhdInfo) NAME(gex_System_QueryProgressThreads) NAME(gex_System_SetVerboseErrors)
    NAME(gex_TM_Create) NAME(gex_TM_Destroy) NAME(gex_TM_Pair) NAME(gex_TM_QueryCData) NAME(gex_TM_QueryClient)
    NAME(gex_TM_QueryEP) NAME(gex_TM_QueryRank) NAME(gex_TM_QuerySize) NAME(gex_TM_SetCData) NAME(gex_TM_Split)
    NAME(gex_TM_TranslateJobrankToRank) NAME(gex_TM_TranslateRankToEP) NAME(gex_TM_TranslateRankToJobrank)
    NAME(gex_Token_Info) NAME(gex_Token_MaxReplyLong) NAME(gex_Token_MaxReplyMedium)
    NAME(gex_VIS_IndexedGetBlocking) NAME(gex_VIS_IndexedGetNB) NAME(gex_VIS_IndexedGetNBI)
    NAME(gex_VIS_IndexedPutBlocking) NAME(gex_VIS_IndexedPutNB) NAME(gex_VIS_IndexedPutNBI)
    NAME(gex_VIS_SetPeerCompletionHandler) NAME(gex_VIS_StridedGetBlocking) NAME(gex_VIS_StridedGetNB)
    NAME(gex_VIS_StridedGetNBI) NAME(gex_VIS_StridedPutBlocking) NAME(gex_VIS_StridedPutNB)
    NAME(gex_VIS_StridedPutNBI) NAME(gex_VIS_VectorGetBlocking) NAME(gex_VIS_VectorGetNB)
    NAME(gex_VIS_VectorGetNBI) NAME(gex_VIS_VectorPutBlocking) NAME(gex_VIS_VectorPutNB)
    NAME(gex_VIS_VectorPutNBI)
    /* GASNet-1 */
    NAME(gasnet_init) NAME(gasnet_attach) NAME(gasnet_getSegmentInfo) NAME(gasnet_AMGetMsgSource)
    NAME(gasnet_AMMaxMedium) NAME(gasnet_AMMaxLongRequest) NAME(gasnet_AMMaxLongReply) NAME(gasnet_put)
    NAME(gasnet_get) NAME(gasnet_put_bulk) NAME(gasnet_get_bulk) NAME(gasnet_memset) NAME(gasnet_put_nb)
    NAME(gasnet_get_nb) NAME(gasnet_put_nb_bulk) NAME(gasnet_get_nb_bulk) NAME(gasnet_memset_nb)
    NAME(gasnet_put_nbi) NAME(gasnet_get_nbi) NAME(gasnet_put_nbi_bulk) NAME(gasnet_get_nbi_bulk)
    NAME(gasnet_memset_nbi) NAME(gasnet_put_val) NAME(gasnet_get_val) NAME(gasnet_put_nb_val)
    NAME(gasnet_put_nbi_val) NAME(gasnet_get_nb_val) NAME(gasnet_wait_syncnb) NAME(gasnet_wait_syncnb_all)
    NAME(gasnet_wait_syncnb_some) NAME(gasnet_try_syncnb) NAME(gasnet_try_syncnb_all)
    NAME(gasnet_try_syncnb_some) NAME(gasnet_wait_syncnbi_puts) NAME(gasnet_wait_syncnbi_gets)
    NAME(gasnet_wait_syncnbi_all) NAME(gasnet_try_syncnbi_puts) NAME(gasnet_try_syncnbi_gets)
    NAME(gasnet_try_syncnbi_all) NAME(gasnet_begin_nbi_accessregion) NAME(gasnet_end_nbi_accessregion)
    NAME(gasnet_wait_syncnb_valget) NAME(gasnet_putv_bulk) NAME(gasnet_getv_bulk) NAME(gasnet_putv_nb_bulk)
    NAME(gasnet_getv_nb_bulk) NAME(gasnet_putv_nbi_bulk) NAME(gasnet_getv_nbi_bulk) NAME(gasnet_puti_bulk)
    NAME(gasnet_geti_bulk) NAME(gasnet_puti_nb_bulk) NAME(gasnet_geti_nb_bulk) NAME(gasnet_puti_nbi_bulk)
    NAME(gasnet_geti_nbi_bulk) NAME(gasnet_puts_bulk) NAME(gasnet_gets_bulk) NAME(gasnet_puts_nb_bulk)
    NAME(gasnet_gets_nb_bulk) NAME(gasnet_puts_nbi_bulk) NAME(gasnet_gets_nbi_bulk) NAME(gasnet_QueryGexObjects)
    NAME(gasnet_coll_broadcast) NAME(gasnet_coll_broadcast_nb) NAME(gasnet_coll_scatter)
    NAME(gasnet_coll_scatter_nb) NAME(gasnet_coll_gather) NAME(gasnet_coll_gather_nb)
    NAME(gasnet_coll_gather_all) NAME(gasnet_coll_gather_all_nb) NAME(gasnet_coll_exchange)
    NAME(gasnet_coll_exchange_nb) NAME(gasnet_coll_wait_sync) NAME(gasnet_coll_try_sync)
    NAME(gasnet_coll_wait_sync_all) NAME(gasnet_coll_barrier) NAME(gasnet_coll_barrier_notify)
    NAME(gasnet_coll_barrier_wait) NAME(gasnet_coll_barrier_try) NAME(gasnet_coll_barrier_result)
    /* Messages with 0 to 16 arguments */
    FAMILY(gex_AM_RequestShort) FAMILY(gex_AM_RequestMedium) FAMILY(gex_AM_RequestLong)
    FAMILY(gex_AM_ReplyShort) FAMILY(gex_AM_ReplyMedium) FAMILY(gex_AM_ReplyLong)
    FAMILY(gex_AM_CommitRequestMedium) FAMILY(gex_AM_CommitRequestLong) FAMILY(gex_AM_CommitReplyMedium)
    FAMILY(gex_AM_CommitReplyLong) FAMILY(gasnet_AMRequestShort) FAMILY(gasnet_AMRequestMedium)
    FAMILY(gasnet_AMRequestLong) FAMILY(gasnet_AMRequestLongAsync) FAMILY(gasnet_AMReplyShort)
    FAMILY(gasnet_AMReplyMedium) FAMILY(gasnet_AMReplyLong)
    /* clang-format on */
};

int main(void)
{
    size_t at, count = sizeof calls / sizeof *calls;
    for (at = 0; at < count; at++)
        if (!calls[at]) return 1;
    printf("%lu calls\n", (unsigned long)count);
    return 0;
}
