/* Active messages: exported entry points that take the arguments as an array, limits, tokens, negotiated payload.
 * The names that clients call, with 0..16 arguments, are generated: am_generated.h. */
#ifndef GASNET_IBV_AM_H
#define GASNET_IBV_AM_H 1

#include "types.h"

GEXI_BEGIN_C

/* The library has copied what it needs of `args` when a call returns; `args` is null when `nargs` is 0. Shorts with few
 * arguments pass them in registers. */
GEXI_API int gexi_AM_RequestShort(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                                  unsigned int nargs, const gex_AM_Arg_t *args);
GEXI_API int gexi_AM_RequestShort0(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags);
GEXI_API int gexi_AM_RequestShort1(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                                   gex_AM_Arg_t a0);
GEXI_API int gexi_AM_RequestShort2(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                                   gex_AM_Arg_t a0, gex_AM_Arg_t a1);
GEXI_API int gexi_AM_RequestShort3(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                                   gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2);
GEXI_API int gexi_AM_RequestMedium(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void *source_addr,
                                   size_t nbytes, gex_Event_t *lc_opt, gex_Flags_t flags, unsigned int nargs,
                                   const gex_AM_Arg_t *args);
GEXI_API int gexi_AM_RequestLong(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void *source_addr,
                                 size_t nbytes, void *dest_addr, gex_Event_t *lc_opt, gex_Flags_t flags,
                                 unsigned int nargs, const gex_AM_Arg_t *args);
GEXI_API int gexi_AM_ReplyShort(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags, unsigned int nargs,
                                const gex_AM_Arg_t *args);
GEXI_API int gexi_AM_ReplyShort0(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags);
GEXI_API int gexi_AM_ReplyShort1(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags, gex_AM_Arg_t a0);
GEXI_API int gexi_AM_ReplyShort2(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags, gex_AM_Arg_t a0,
                                 gex_AM_Arg_t a1);
GEXI_API int gexi_AM_ReplyShort3(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags, gex_AM_Arg_t a0,
                                 gex_AM_Arg_t a1, gex_AM_Arg_t a2);
GEXI_API int gexi_AM_ReplyMedium(gex_Token_t token, gex_AM_Index_t handler, const void *source_addr, size_t nbytes,
                                 gex_Event_t *lc_opt, gex_Flags_t flags, unsigned int nargs, const gex_AM_Arg_t *args);
GEXI_API int gexi_AM_ReplyLong(gex_Token_t token, gex_AM_Index_t handler, const void *source_addr, size_t nbytes,
                               void *dest_addr, gex_Event_t *lc_opt, gex_Flags_t flags, unsigned int nargs,
                               const gex_AM_Arg_t *args);

/* Commit: the form without _v2 cannot fail and has no result, so a wrong one ends the process. */
#define GEXI_COMMIT_MUST 0x80000000U
GEXI_API int gexi_AM_CommitRequestMedium(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler, size_t nbytes, gex_Flags_t flags,
                                         unsigned int nargs, const gex_AM_Arg_t *args);
GEXI_API int gexi_AM_CommitReplyMedium(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler, size_t nbytes, gex_Flags_t flags,
                                       unsigned int nargs, const gex_AM_Arg_t *args);
GEXI_API int gexi_AM_CommitRequestLong(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler, size_t nbytes, void *dest_addr,
                                       gex_Flags_t flags, unsigned int nargs, const gex_AM_Arg_t *args);
GEXI_API int gexi_AM_CommitReplyLong(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler, size_t nbytes, void *dest_addr,
                                     gex_Flags_t flags, unsigned int nargs, const gex_AM_Arg_t *args);

GEXI_API gex_AM_SrcDesc_t gex_AM_PrepareRequestMedium(gex_TM_t tm, gex_Rank_t rank, const void *client_buf,
                                                      size_t least_payload, size_t most_payload, gex_Event_t *lc_opt,
                                                      gex_Flags_t flags, unsigned int numargs);
GEXI_API gex_AM_SrcDesc_t gex_AM_PrepareReplyMedium(gex_Token_t token, const void *client_buf, size_t least_payload,
                                                    size_t most_payload, gex_Event_t *lc_opt, gex_Flags_t flags,
                                                    unsigned int numargs);
GEXI_API gex_AM_SrcDesc_t gex_AM_PrepareRequestLong(gex_TM_t tm, gex_Rank_t rank, const void *client_buf,
                                                    size_t least_payload, size_t most_payload, void *dest_addr,
                                                    gex_Event_t *lc_opt, gex_Flags_t flags, unsigned int numargs);
GEXI_API gex_AM_SrcDesc_t gex_AM_PrepareReplyLong(gex_Token_t token, const void *client_buf, size_t least_payload,
                                                  size_t most_payload, void *dest_addr, gex_Event_t *lc_opt,
                                                  gex_Flags_t flags, unsigned int numargs);
GEXI_API void *gex_AM_SrcDescAddr(gex_AM_SrcDesc_t sd);
GEXI_API size_t gex_AM_SrcDescSize(gex_AM_SrcDesc_t sd);
GEXI_API int gex_AM_CancelRequestMedium(gex_AM_SrcDesc_t sd, gex_Flags_t flags);
GEXI_API int gex_AM_CancelReplyMedium(gex_AM_SrcDesc_t sd, gex_Flags_t flags);
GEXI_API int gex_AM_CancelRequestLong(gex_AM_SrcDesc_t sd, gex_Flags_t flags);
GEXI_API int gex_AM_CancelReplyLong(gex_AM_SrcDesc_t sd, gex_Flags_t flags);

/* Limits, in bytes; the macro makes the first one a constant expression. */
GEXI_INLINE unsigned int gex_AM_MaxArgs(void)
{
    return 16U;
}
#define gex_AM_MaxArgs() (16U)
GEXI_API size_t gex_AM_MaxRequestMedium(gex_TM_t tm, gex_Rank_t other_rank, const gex_Event_t *lc_opt,
                                        gex_Flags_t flags, unsigned int numargs);
GEXI_API size_t gex_AM_MaxReplyMedium(gex_TM_t tm, gex_Rank_t other_rank, const gex_Event_t *lc_opt, gex_Flags_t flags,
                                      unsigned int numargs);
GEXI_API size_t gex_AM_MaxRequestLong(gex_TM_t tm, gex_Rank_t other_rank, const gex_Event_t *lc_opt, gex_Flags_t flags,
                                      unsigned int numargs);
GEXI_API size_t gex_AM_MaxReplyLong(gex_TM_t tm, gex_Rank_t other_rank, const gex_Event_t *lc_opt, gex_Flags_t flags,
                                    unsigned int numargs);
GEXI_API size_t gex_Token_MaxReplyMedium(gex_Token_t token, const gex_Event_t *lc_opt, gex_Flags_t flags,
                                         unsigned int numargs);
GEXI_API size_t gex_Token_MaxReplyLong(gex_Token_t token, const gex_Event_t *lc_opt, gex_Flags_t flags,
                                       unsigned int numargs);
GEXI_API size_t gex_AM_LUBRequestMedium(void);
GEXI_API size_t gex_AM_LUBReplyMedium(void);
GEXI_API size_t gex_AM_LUBRequestLong(void);
GEXI_API size_t gex_AM_LUBReplyLong(void);

/* Inside a handler: who sent this message, and what it is. Returns the mask of the fields that were written. */
GEXI_API gex_TI_t gex_Token_Info(gex_Token_t token, gex_Token_Info_t *info, gex_TI_t mask);

/* Runs handlers of messages that have arrived. */
GEXI_API int gasnet_AMPoll(void);

GEXI_END_C

#include "am_generated.h"

#endif
