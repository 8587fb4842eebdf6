/* What a client tells the compiler about its own functions. */
#ifndef GASNET_IBV_TOOLS_ANNOTATIONS_H
#define GASNET_IBV_TOOLS_ANNOTATIONS_H 1

#include "platform.h"

#ifdef __cplusplus
#define GASNETT_EXTERNC extern "C"
#define GASNETT_BEGIN_EXTERNC extern "C" {
#define GASNETT_END_EXTERNC }
#else
#define GASNETT_EXTERNC extern
#define GASNETT_BEGIN_EXTERNC
#define GASNETT_END_EXTERNC
#endif

/* A string that stays in the object file: GASNETT_IDENT(name, "$name: text $"); */
#define GASNETT_IDENT(variable, text) static const char variable[] __attribute__((__used__)) = text

#define GASNETT_INLINE(function) GEXI_INLINE
#define GASNETT_NEVER_INLINE(function, declarator) __attribute__((__noinline__)) declarator
#define GASNETT_NORETURN GEXI_NORETURN
#define GASNETT_NORETURNP(function)
#define GASNETT_FORMAT_PRINTF(function, format_index, first_index, declarator)                                       \
    __attribute__((__format__(__printf__, format_index, first_index))) declarator
#define GASNETT_MALLOC __attribute__((__malloc__))
#define GASNETT_PURE __attribute__((__pure__))
#define GASNETT_CONST __attribute__((__const__))
#define GASNETT_WARN_UNUSED_RESULT __attribute__((__warn_unused_result__))
#define GASNETT_DEPRECATED __attribute__((__deprecated__))
#define GASNETT_USED __attribute__((__used__))
#define GASNETT_HOT __attribute__((__hot__))
#define GASNETT_COLD __attribute__((__cold__))
#define GASNETT_FALLTHROUGH __attribute__((__fallthrough__));
#define GASNETT_RESTRICT __restrict__

#define gasnett_constant_p(expression) __builtin_constant_p(expression)
#define gasnett_assume(condition) ((condition) ? (void)0 : __builtin_unreachable())
#define gasnett_unreachable() __builtin_unreachable()

#define GASNETT_UNUSED_ARGS1(a) (void)(a)
#define GASNETT_UNUSED_ARGS2(a, b) ((void)(a), (void)(b))
#define GASNETT_UNUSED_ARGS3(a, b, c) ((void)(a), (void)(b), (void)(c))
#define GASNETT_UNUSED_ARGS4(a, b, c, d) (GASNETT_UNUSED_ARGS3(a, b, c), (void)(d))
#define GASNETT_UNUSED_ARGS5(a, b, c, d, e) (GASNETT_UNUSED_ARGS4(a, b, c, d), (void)(e))
#define GASNETT_UNUSED_ARGS6(a, b, c, d, e, f) (GASNETT_UNUSED_ARGS5(a, b, c, d, e), (void)(f))
#define GASNETT_UNUSED_ARGS7(a, b, c, d, e, f, g) (GASNETT_UNUSED_ARGS6(a, b, c, d, e, f), (void)(g))
#define GASNETT_UNUSED_ARGS8(a, b, c, d, e, f, g, h) (GASNETT_UNUSED_ARGS7(a, b, c, d, e, f, g), (void)(h))
#define GASNETT_VALUE_ASSIGN(variable, value) ((variable) = (value))
#define GASNETT_VALUE_RETURN(value) return (value)

#define GASNETT_CURRENT_FUNCTION __func__

#endif
