/* gasnet.h: the GASNet-1 interface, over the GASNet-EX one. */
#ifndef GASNET_H
#define GASNET_H 1
#define _INCLUDED_GASNET_H 1 /* clients look for it */

#include "gasnet_ibv/gasnet1.h"

#endif
