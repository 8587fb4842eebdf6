/* Words of the compiler that the other parts are written with. Private: names begin with GEXI. */
#ifndef GASNET_IBV_BASE_H
#define GASNET_IBV_BASE_H 1

#if !defined(__GNUC__) || !defined(__LP64__) || (!defined(__x86_64__) && !defined(__aarch64__))
#error "gasnet_ibv: these headers are for gcc, clang and compatible compilers on 64-bit x86 or ARM Linux"
#endif

#ifdef __cplusplus
#define GEXI_BEGIN_C extern "C" {
#define GEXI_END_C }
#else
#define GEXI_BEGIN_C
#define GEXI_END_C
#endif

/* GEXI_API: exported by libgasnet-ibv-{seq,parsync,par}. A test compares the mark with the symbols of the libraries. */
#define GEXI_API extern
#define GEXI_INLINE static __inline__ __attribute__((__unused__))
/* Not called on the way that is to be fast: compilers keep such calls out of loops. */
#define GEXI_COLD __attribute__((__cold__))
#define GEXI_NORETURN __attribute__((__noreturn__))
#define GEXI_LIKELY(x) __builtin_expect(!!(x), 1)
#define GEXI_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define GEXI_PASTE_(a, b) a##b
#define GEXI_PASTE(a, b) GEXI_PASTE_(a, b)
#define GEXI_TEXT_(a) #a
#define GEXI_TEXT(a) GEXI_TEXT_(a)

/* Keeps the compiler from moving memory accesses; no instruction. */
#define GEXI_COMPILER_FENCE() __asm__ __volatile__("" ::: "memory")
/* GEXI_ACQUIRE orders earlier loads before later accesses. GEXI_ORDER also orders earlier stores before later stores: what
 * a put wrote is seen before whatever tells of it. x86 does both by itself. */
#if defined(__x86_64__)
#define GEXI_ACQUIRE() GEXI_COMPILER_FENCE()
#define GEXI_ORDER() GEXI_COMPILER_FENCE()
#else
#define GEXI_ACQUIRE() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define GEXI_ORDER() __atomic_thread_fence(__ATOMIC_ACQ_REL)
#endif

#endif
