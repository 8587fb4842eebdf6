/* Formats of printf for size_t (SZ) and ptrdiff_t (PD), beside those of <inttypes.h>. */
#ifndef GASNET_IBV_TOOLS_NUMBERS_H
#define GASNET_IBV_TOOLS_NUMBERS_H 1

#include <inttypes.h>

#ifndef PRIuSZ
#define PRIdSZ "zd"
#define PRIiSZ "zi"
#define PRIoSZ "zo"
#define PRIuSZ "zu"
#define PRIxSZ "zx"
#define PRIXSZ "zX"
#endif

#ifndef PRIdPD
#define PRIdPD "td"
#define PRIiPD "ti"
#define PRIoPD "to"
#define PRIuPD "tu"
#define PRIxPD "tx"
#define PRIXPD "tX"
#endif

#endif
