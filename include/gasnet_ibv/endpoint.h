/* Endpoints and segments. */
#ifndef GASNET_IBV_ENDPOINT_H
#define GASNET_IBV_ENDPOINT_H 1

#include "types.h"

GEXI_BEGIN_C

GEXI_API int gex_EP_Create(gex_EP_t *ep_p, gex_Client_t client, gex_EP_Capabilities_t capabilities, gex_Flags_t flags);
GEXI_API int gex_EP_BindSegment(gex_EP_t ep, gex_Segment_t segment, gex_Flags_t flags);
/* Collective over `tm`: makes the segments of the listed local endpoints usable by all its members. */
GEXI_API int gex_EP_PublishBoundSegment(gex_TM_t tm, gex_EP_t *eps, size_t num_eps, gex_Flags_t flags);
/* A length of 0 is the only sign of failure. The outputs are valid when the event is complete. */
GEXI_API gex_Event_t gex_EP_QueryBoundSegmentNB(gex_TM_t tm, gex_Rank_t rank, void **owneraddr_p, void **localaddr_p,
                                                uintptr_t *size_p, gex_Flags_t flags);
GEXI_API int gex_EP_RegisterHandlers(gex_EP_t ep, gex_AM_Entry_t *table, size_t numentries);
GEXI_API gex_Client_t gex_EP_QueryClient(gex_EP_t ep);
GEXI_API gex_Flags_t gex_EP_QueryFlags(gex_EP_t ep);
GEXI_API gex_Segment_t gex_EP_QuerySegment(gex_EP_t ep);
GEXI_API gex_EP_Index_t gex_EP_QueryIndex(gex_EP_t ep);
GEXI_API void gex_EP_SetCData(gex_EP_t ep, const void *cdata);
GEXI_API void *gex_EP_QueryCData(gex_EP_t ep);

/* Collective over tm0: memory of `size` bytes (a multiple of the page), bound to the first endpoint. */
GEXI_API int gex_Segment_Attach(gex_Segment_t *segment_p, gex_TM_t tm, uintptr_t size);
/* Local: memory of the client, or of the library when `address` is null. */
GEXI_API int gex_Segment_Create(gex_Segment_t *segment_p, gex_Client_t client, gex_Addr_t address, uintptr_t length,
                                gex_MK_t kind, gex_Flags_t flags);
GEXI_API void gex_Segment_Destroy(gex_Segment_t segment, gex_Flags_t flags);
GEXI_API gex_Client_t gex_Segment_QueryClient(gex_Segment_t segment);
GEXI_API gex_Flags_t gex_Segment_QueryFlags(gex_Segment_t segment);
GEXI_API void *gex_Segment_QueryAddr(gex_Segment_t segment);
GEXI_API uintptr_t gex_Segment_QuerySize(gex_Segment_t segment);
/* Former way to ask for a peer's segment: 0, or non-zero with the outputs untouched. */
GEXI_API int gex_Segment_QueryBound(gex_TM_t tm, gex_Rank_t rank, void **owner_p, void **local_p, uintptr_t *size_p);
GEXI_API void gex_Segment_SetCData(gex_Segment_t segment, const void *cdata);
GEXI_API void *gex_Segment_QueryCData(gex_Segment_t segment);

GEXI_END_C
#endif
