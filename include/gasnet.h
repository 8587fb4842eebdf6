/* gasnet.h: the GASNet-1 interface, over the GASNet-EX one, and the tools, as its clients expect. */
#ifndef GASNET_H
#define GASNET_H 1
#define _INCLUDED_GASNET_H 1 /* clients look for it */

#include "gasnet_ibv/gasnet1.h"
#include "gasnet_ibv/gasnet1_vis.h"
#include "gasnet_tools.h"

#endif
