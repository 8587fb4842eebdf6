/* ibv-conduit/gasnet_core.h: build systems take its presence for that of the conduit. What it declares is in gasnetex.h. */
#ifndef IBV_CONDUIT_GASNET_CORE_H
#define IBV_CONDUIT_GASNET_CORE_H 1

#include "../gasnetex.h"

#endif
