/* gasnetex.h: the GASNet-EX interface of gasnetrun_ibv's conduit.
 *
 * Define exactly one of GASNET_SEQ, GASNET_PARSYNC, GASNET_PAR first and link the library of that mode. In headers of
 * their own: GASNet-1 (gasnet.h), collectives beside the barrier (gasnet_coll.h), portability tools (gasnet_tools.h).
 * How header and library fit together: docs/design/c-face.md. */
#ifndef GASNETEX_H
#define GASNETEX_H 1
#define _INCLUDED_GASNETEX_H 1 /* the tools headers look for it */

/* Clients rely on these arriving with this header. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "gasnet_ibv/config.h"
#if defined(GASNET_PAR) || defined(GASNET_PARSYNC)
#include <pthread.h>
#endif

#include "gasnet_ibv/types.h"

#include "gasnet_ibv/am.h"
#include "gasnet_ibv/barrier.h"
#include "gasnet_ibv/endpoint.h"
#include "gasnet_ibv/event.h"
#include "gasnet_ibv/helpers.h"
#include "gasnet_ibv/hsl.h"
#include "gasnet_ibv/rma.h"
#include "gasnet_ibv/system.h"
#include "gasnet_ibv/team.h"
#include "gasnet_ibv/wait.h"

#endif
