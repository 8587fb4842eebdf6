/* Values, types, layouts and the use of macros in #if: decided by the compiler, in C and in C++. */
#include <gasnet.h>
#include <gasnet_coll.h>
#include <gasnet_mk.h>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>

#ifdef __cplusplus
#define CHECK(condition) static_assert(condition, #condition)
template <class A, class B> struct same { static const bool value = false; };
template <class A> struct same<A, A> { static const bool value = true; };
#define TYPE(expression, type) CHECK((same<__typeof__(expression), type>::value))
#else
#define CHECK(condition) _Static_assert(condition, #condition)
#define TYPE(expression, type) CHECK(__builtin_types_compatible_p(__typeof__(expression), type))
#endif

#define SIZE(type, bytes) CHECK(sizeof(type) == (bytes))
#define PLACE(type, field, offset) CHECK(offsetof(type, field) == (offset))

/* Release, mode and configuration in #if. */
#if GASNET_RELEASE_VERSION_MAJOR * 10000 + GASNET_RELEASE_VERSION_MINOR * 100 + GASNET_RELEASE_VERSION_PATCH != 20250800
#error "release"
#endif
#if !(GEX_SPEC_VERSION_MAJOR > 0 || GEX_SPEC_VERSION_MINOR >= 19) || GASNET_SPEC_VERSION_MAJOR != 1 ||               \
    GASNET_SPEC_VERSION_MINOR != 8 || GASNET_VERSION != 1
#error "specification"
#endif
#if GASNET_SEQ + GASNET_PARSYNC + GASNET_PAR != 1
#error "the chosen mode is 1 and the others are not defined"
#endif
#if defined(WANT_EVERYTHING)
#if GASNET_SEGMENT_EVERYTHING != 1 || defined(GASNET_SEGMENT_LARGE) || defined(GASNET_SEGMENT_FAST)
#error "segment"
#endif
#elif defined(WANT_LARGE)
#if GASNET_SEGMENT_LARGE != 1 || defined(GASNET_SEGMENT_EVERYTHING) || defined(GASNET_SEGMENT_FAST)
#error "segment"
#endif
#elif GASNET_SEGMENT_FAST != 1 || defined(GASNET_SEGMENT_LARGE) || defined(GASNET_SEGMENT_EVERYTHING)
#error "segment"
#endif
#if GASNET_NDEBUG != 1 || defined(GASNET_DEBUG) || defined(GASNET_TRACE) || defined(GASNET_STATS) ||                 \
    defined(GASNET_SRCLINES) || defined(GASNET_DEBUGMALLOC)
#error "build"
#endif
#if !GASNET_CONDUIT_IBV || !GASNET_IBV_CONDUIT || !GASNET_PSHM || GASNET_ALIGNED_SEGMENTS || !GASNET_NULL_ARGV_OK
#error "conduit"
#endif
#if GASNET_MAXNODES != 65535 || GASNET_MAXEPS != 33 || GASNET_PAGESIZE != 4096 || (1048576 % GASNET_PAGESIZE) ||     \
    GASNET_IBV_MAX_HCAS < 1 || GEX_AM_INDEX_BASE != 128 || SIZEOF_GEX_RMA_VALUE_T != 8 || GASNETI_MAX_THREADS < 1 || \
    SIZEOF_GASNET_REGISTER_VALUE_T != 8
#error "limits"
#endif
#if GASNET_HIDDEN_AM_CONCURRENCY_LEVEL != 1 || !GASNET_RCV_THREAD || !GASNET_SND_THREAD
#error "threads"
#endif
#if !GASNET_SUPPORTS_TI_SRCRANK || !GASNET_SUPPORTS_TI_EP || !GASNET_SUPPORTS_TI_ENTRY || !GASNET_SUPPORTS_TI_IS_REQ || \
    !GASNET_SUPPORTS_TI_IS_LONG || GASNET_SUPPORTS_AM_CANCEL < 20240418L || GASNET_SUPPORTS_AM_COMMIT_V2 < 20240906L || \
    !GASNET_NATIVE_NP_ALLOC_REQ_MEDIUM || !GASNET_NATIVE_NP_ALLOC_REP_MEDIUM || !GASNET_NATIVE_NP_ALLOC_REQ_LONG ||    \
    !GASNET_NATIVE_NP_ALLOC_REP_LONG
#error "messages"
#endif
#if !GASNET_HAVE_MK_CLASS_HOST || GASNET_HAVE_MK_CLASS_CUDA_UVA || GASNET_HAVE_MK_CLASS_HIP || GASNET_HAVE_MK_CLASS_ZE
#error "memory kinds"
#endif
#if GEX_FLAG_PEER_NEVER_NBRHD != 0x4000 || GEX_FLAG_PEER_NEVER_SELF != 0x8000 || GEX_FLAG_IMMEDIATE != 1
#error "flags"
#endif
#if GASNET_OK != 0 || GASNET_ERR_NOT_INIT != 10001 || GASNET_ERR_RESOURCE != 10002 || GASNET_ERR_BAD_ARG != 10003 || \
    GASNET_ERR_NOT_READY != 10004 || GASNET_ERR_BARRIER_MISMATCH != 10005
#error "errors"
#endif
#if !defined(_INCLUDED_GASNETEX_H) || !defined(_INCLUDED_GASNET_H) || !defined(MIN) || !defined(MAX)
#error "marks"
#endif

/* Texts. */
static const char texts[] = GASNET_CONFIG_STRING GASNET_CONDUIT_NAME_STR GASNET_CORE_NAME_STR GASNET_CORE_VERSION_STR
    GASNET_EXTENDED_NAME_STR GASNET_EXTENDED_VERSION_STR;
CHECK(sizeof(texts) > 100);

/* Types. */
TYPE(gex_Rank_t, uint32_t);
TYPE(gex_EP_Index_t, uint16_t);
TYPE(gex_DT_t, uint32_t);
TYPE(gex_OP_t, uint32_t);
TYPE(gex_Flags_t, uint32_t);
TYPE(gex_EP_Capabilities_t, uint32_t);
TYPE(gex_Addr_t, void *);
TYPE(gex_AM_Index_t, uint8_t);
TYPE(gex_AM_Arg_t, int32_t);
TYPE(gex_RMA_Value_t, uint64_t);
TYPE(gex_TI_t, unsigned int);
TYPE(gex_EC_t, unsigned int);
TYPE(gasnet_threadinfo_t, void *);
TYPE(gasnet_node_t, gex_Rank_t);
TYPE(gasnet_token_t, gex_Token_t);
TYPE(gasnet_handler_t, gex_AM_Index_t);
TYPE(gasnet_handlerarg_t, gex_AM_Arg_t);
TYPE(gasnet_register_value_t, gex_RMA_Value_t);
TYPE(gasnet_handle_t, gex_Event_t);
TYPE(gasnet_hsl_t, gex_HSL_t);
TYPE(GEX_RANK_INVALID, gex_Rank_t);
TYPE(GEX_EVENT_INVALID, gex_Event_t);
TYPE(GEX_EVENT_NO_OP, gex_Event_t);
TYPE(GEX_EVENT_NOW, gex_Event_t *);
TYPE(GEX_EVENT_DEFER, gex_Event_t *);
TYPE(GEX_EVENT_GROUP, gex_Event_t *);
TYPE(GEX_TM_INVALID, gex_TM_t);
TYPE(GEX_MK_HOST, gex_MK_t);
TYPE(GEX_OP_USER_NC, gex_OP_t);
TYPE(GEX_FLAG_AM_REQREP, gex_Flags_t);
TYPE(GEX_FLAG_PEER_NEVER_SELF, gex_Flags_t);
TYPE(GEX_EC_PUT, gex_EC_t);
TYPE(GEX_EC_ALL, gex_EC_t);
TYPE(GEX_TI_ALL, gex_TI_t);
#ifdef __cplusplus
/* Clients overload on the objects, so they must be distinct. */
static inline int kind(gex_Client_t) { return 1; }
static inline int kind(gex_EP_t) { return 2; }
static inline int kind(gex_TM_t) { return 3; }
static inline int kind(gex_Segment_t) { return 4; }
static inline int kind(gex_Token_t) { return 5; }
static inline int kind(gex_AM_SrcDesc_t) { return 6; }
static inline int kind(gex_MK_t) { return 7; }
static inline int kind(gex_AD_t) { return 8; }
static inline int kind(gex_Event_t) { return 9; }
#endif

/* Layouts of docs/design/c-face.md. */
SIZE(gex_AM_Entry_t, 40);
PLACE(gex_AM_Entry_t, gex_index, 0);
PLACE(gex_AM_Entry_t, gex_fnptr, 8);
PLACE(gex_AM_Entry_t, gex_flags, 16);
PLACE(gex_AM_Entry_t, gex_nargs, 20);
PLACE(gex_AM_Entry_t, gex_cdata, 24);
PLACE(gex_AM_Entry_t, gex_name, 32);
SIZE(gex_Token_Info_t, 32);
PLACE(gex_Token_Info_t, gex_srcrank, 0);
PLACE(gex_Token_Info_t, gex_ep, 8);
PLACE(gex_Token_Info_t, gex_entry, 16);
PLACE(gex_Token_Info_t, gex_is_req, 24);
PLACE(gex_Token_Info_t, gex_is_long, 28);
SIZE(gex_EP_Location_t, 8);
PLACE(gex_EP_Location_t, gex_rank, 0);
PLACE(gex_EP_Location_t, gex_ep_index, 4);
SIZE(gex_Memvec_t, 16);
PLACE(gex_Memvec_t, gex_addr, 0);
PLACE(gex_Memvec_t, gex_len, 8);
SIZE(gasnet_memvec_t, 16);
PLACE(gasnet_memvec_t, addr, 0);
PLACE(gasnet_memvec_t, len, 8);
SIZE(gasnet_seginfo_t, 16);
PLACE(gasnet_seginfo_t, addr, 0);
PLACE(gasnet_seginfo_t, size, 8);
SIZE(gasnet_nodeinfo_t, 24);
PLACE(gasnet_nodeinfo_t, host, 0);
PLACE(gasnet_nodeinfo_t, supernode, 4);
PLACE(gasnet_nodeinfo_t, offset, 8);
SIZE(gex_RankInfo_t, 4);
PLACE(gex_RankInfo_t, gex_jobrank, 0);
SIZE(gex_ProgressThreadInfo_t, 32);
PLACE(gex_ProgressThreadInfo_t, gex_device_list, 0);
PLACE(gex_ProgressThreadInfo_t, gex_thread_roles, 8);
PLACE(gex_ProgressThreadInfo_t, gex_progress_fn, 16);
PLACE(gex_ProgressThreadInfo_t, gex_progress_arg, 24);
SIZE(gasnet_handlerentry_t, 16);
PLACE(gasnet_handlerentry_t, index, 0);
PLACE(gasnet_handlerentry_t, fnptr, 8);
SIZE(gex_HSL_t, 16);
PLACE(gex_HSL_t, gexi_state, 0);
SIZE(struct gexi_world, 64);
PLACE(struct gexi_world, abi, 0);
PLACE(struct gexi_world, mode, 4);
PLACE(struct gexi_world, tm0, 8);
PLACE(struct gexi_world, rank, 16);
PLACE(struct gexi_world, size, 20);
PLACE(struct gexi_world, peers, 24);
PLACE(struct gexi_world, peer_first, 32);
PLACE(struct gexi_world, peer_count, 36);
PLACE(struct gexi_world, ep0, 40);
PLACE(struct gexi_world, client, 48);
PLACE(struct gexi_world, reserved, 56);
SIZE(struct gexi_peer, 32);
PLACE(struct gexi_peer, owner_base, 0);
PLACE(struct gexi_peer, size, 8);
PLACE(struct gexi_peer, local_base, 16);
PLACE(struct gexi_peer, reserved, 24);

/* Values. */
CHECK(GEX_RANK_INVALID == 0xffffffffU);
CHECK((GEX_DT_I32 | GEX_DT_U32 << 0 | GEX_DT_I64 | GEX_DT_U64 | GEX_DT_FLT | GEX_DT_DBL | GEX_DT_USER) == 127);
CHECK(GEX_DT_I32 == 1 && GEX_DT_USER == 64);
CHECK(GEX_OP_AND == 1 && GEX_OP_OR == 2 && GEX_OP_XOR == 4 && GEX_OP_ADD == 8 && GEX_OP_SUB == 16 &&
      GEX_OP_MULT == 32 && GEX_OP_MIN == 64 && GEX_OP_MAX == 128 && GEX_OP_INC == 256 && GEX_OP_DEC == 512 &&
      GEX_OP_SET == 1024 && GEX_OP_CAS == 2048);
CHECK(GEX_OP_TO_FETCHING(GEX_OP_AND) == GEX_OP_FAND && GEX_OP_TO_FETCHING(GEX_OP_OR) == GEX_OP_FOR &&
      GEX_OP_TO_FETCHING(GEX_OP_XOR) == GEX_OP_FXOR && GEX_OP_TO_FETCHING(GEX_OP_ADD) == GEX_OP_FADD &&
      GEX_OP_TO_FETCHING(GEX_OP_SUB) == GEX_OP_FSUB && GEX_OP_TO_FETCHING(GEX_OP_MULT) == GEX_OP_FMULT &&
      GEX_OP_TO_FETCHING(GEX_OP_MIN) == GEX_OP_FMIN && GEX_OP_TO_FETCHING(GEX_OP_MAX) == GEX_OP_FMAX &&
      GEX_OP_TO_FETCHING(GEX_OP_INC) == GEX_OP_FINC && GEX_OP_TO_FETCHING(GEX_OP_DEC) == GEX_OP_FDEC &&
      GEX_OP_TO_FETCHING(GEX_OP_SET) == GEX_OP_SWAP && GEX_OP_TO_FETCHING(GEX_OP_CAS) == GEX_OP_FCAS);
CHECK(GEX_OP_TO_NONFETCHING(GEX_OP_FADD) == GEX_OP_ADD && GEX_OP_CSWAP == GEX_OP_FCAS);
CHECK(GEX_OP_GET == 1U << 27 && GEX_OP_USER == 1U << 30 && GEX_OP_USER_NC == 1U << 31);
CHECK(GEX_FLAG_AM_MEDLONG == 6 && GEX_FLAG_AM_REQREP == 24 && GEX_FLAG_HINT_ACCEL_ALL == 3);
CHECK(GEX_EP_CAPABILITY_RMA == 1 && GEX_EP_CAPABILITY_AM == 2 && GEX_EP_CAPABILITY_VIS == 4 &&
      GEX_EP_CAPABILITY_COLL == 8 && GEX_EP_CAPABILITY_AD == 16 && GEX_EP_CAPABILITY_ALL == 31);
CHECK(GEX_TI_SRCRANK == 1 && GEX_TI_ENTRY == 2 && GEX_TI_IS_REQ == 4 && GEX_TI_IS_LONG == 8 && GEX_TI_EP == 16 &&
      GEX_TI_ALL == 31);
CHECK(GEX_EC_LC == 2 && GEX_EC_AM == 2 && GEX_EC_PUT == 3 && GEX_EC_GET == 4 && GEX_EC_RMW == 8);
CHECK(GASNET_BARRIERFLAG_ANONYMOUS == 1 && GASNET_BARRIERFLAG_MISMATCH == 2 && GASNET_BARRIERFLAG_UNNAMED == 9);
CHECK(GASNET_WAIT_SPIN == 0 && GASNET_WAIT_BLOCK == 1 && GASNET_WAIT_SPINBLOCK == 2);
CHECK(GEX_THREAD_ROLE_RCV == 1 && GEX_THREAD_ROLE_SND == 2);
CHECK(gex_AM_MaxArgs() == 16 && GEX_VIS_MAX_PEERCOMPLETION == 127);

/* Flags of one group of calls share no bit: then their sum is their union. */
#define SEG(operator)                                                                                                \
    GEX_FLAG_SELF_SEG_UNKNOWN operator GEX_FLAG_SELF_SEG_SOME operator GEX_FLAG_SELF_SEG_BOUND                       \
    operator GEX_FLAG_SELF_SEG_OFFSET operator GEX_FLAG_PEER_SEG_UNKNOWN operator GEX_FLAG_PEER_SEG_SOME             \
    operator GEX_FLAG_PEER_SEG_BOUND operator GEX_FLAG_PEER_SEG_OFFSET operator GEX_FLAG_IMMEDIATE
#define RMA(operator) SEG(operator) operator GEX_FLAG_PEER_NEVER_SELF operator GEX_FLAG_PEER_NEVER_NBRHD
#define AM(operator) SEG(operator) operator GEX_FLAG_AM_PREPARE_LEAST_CLIENT operator GEX_FLAG_AM_PREPARE_LEAST_ALLOC
#define VIS(operator) SEG(operator) operator GEX_FLAG_ENABLE_LEAF_LC
#define REGISTER(operator)                                                                                           \
    GEX_FLAG_AM_SHORT operator GEX_FLAG_AM_MEDIUM operator GEX_FLAG_AM_LONG operator GEX_FLAG_AM_REQUEST             \
    operator GEX_FLAG_AM_REPLY
#define INIT(operator) GEX_FLAG_USES_GASNET1 operator GEX_FLAG_DEFER_THREADS
#define EP(operator) GEX_FLAG_HINT_ACCEL_AD operator GEX_FLAG_HINT_ACCEL_COLL
#define TM(operator)                                                                                                 \
    GEX_FLAG_TM_SCRATCH_SIZE_MIN operator GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED operator GEX_FLAG_TM_GLOBAL_SCRATCH   \
    operator GEX_FLAG_TM_LOCAL_SCRATCH operator GEX_FLAG_TM_SYMMETRIC_SCRATCH operator GEX_FLAG_TM_NO_SCRATCH        \
    operator GEX_FLAG_SCRATCH_SEG_OFFSET operator GEX_FLAG_RANK_IS_JOBRANK
#define AD_CREATE(operator)                                                                                          \
    GEX_FLAG_AD_FAVOR_MY_RANK operator GEX_FLAG_AD_FAVOR_MY_NBRHD operator GEX_FLAG_AD_FAVOR_REMOTE
#define AD_OP(operator)                                                                                              \
    GEX_FLAG_IMMEDIATE operator GEX_FLAG_AD_REL operator GEX_FLAG_AD_ACQ operator GEX_FLAG_AD_MY_RANK                \
    operator GEX_FLAG_AD_MY_NBRHD operator GEX_FLAG_RANK_IS_JOBRANK
#define DISJOINT(group) CHECK((group(+)) == (group(|)) && (group(|)) != 0)
DISJOINT(RMA);
DISJOINT(AM);
DISJOINT(VIS);
DISJOINT(REGISTER);
DISJOINT(INIT);
DISJOINT(EP);
DISJOINT(TM);
DISJOINT(AD_CREATE);
DISJOINT(AD_OP);

/* Static initializers and labels. */
gex_HSL_t lock = GEX_HSL_INITIALIZER;
gasnet_hsl_t former_lock = GASNET_HSL_INITIALIZER;
static int label(gex_DT_t type, gex_OP_t operation)
{
    switch (type) {
    case GEX_DT_I32: return 1;
    case GEX_DT_DBL: return 2;
    default: break;
    }
    switch (operation) {
    case GEX_OP_ADD: return 3;
    case GEX_OP_USER_NC: return 4;
    default: return 0;
    }
}

int main(void)
{
    GASNET_BEGIN_FUNCTION();
#ifdef __cplusplus
    if (kind(GEX_CLIENT_INVALID) != 1 || kind(GEX_EP_INVALID) != 2 || kind(GEX_TM_INVALID) != 3 ||
        kind(GEX_SEGMENT_INVALID) != 4 || kind(gex_Token_t(0)) != 5 || kind(GEX_AM_SRCDESC_NO_OP) != 6 ||
        kind(GEX_MK_INVALID) != 7 || kind(GEX_AD_INVALID) != 8 || kind(GEX_EVENT_INVALID) != 9)
        return 1;
#endif
    return texts[0] == 'R' && label(GEX_DT_DBL, 0) == 2 ? 0 : 1;
}
