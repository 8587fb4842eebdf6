/* Lists for messages with M = 0 to 16 arguments: PM parameters of a handler, UM their names, VM `value(0)` to `value(M - 1)`,
 * which the program defines; EACH(X) is X for every M. Lists begin with a comma. */
#ifndef TESTS_C_COUNTS_H
#define TESTS_C_COUNTS_H 1

#define P0
#define P1 P0, gex_AM_Arg_t a0
#define P2 P1, gex_AM_Arg_t a1
#define P3 P2, gex_AM_Arg_t a2
#define P4 P3, gex_AM_Arg_t a3
#define P5 P4, gex_AM_Arg_t a4
#define P6 P5, gex_AM_Arg_t a5
#define P7 P6, gex_AM_Arg_t a6
#define P8 P7, gex_AM_Arg_t a7
#define P9 P8, gex_AM_Arg_t a8
#define P10 P9, gex_AM_Arg_t a9
#define P11 P10, gex_AM_Arg_t a10
#define P12 P11, gex_AM_Arg_t a11
#define P13 P12, gex_AM_Arg_t a12
#define P14 P13, gex_AM_Arg_t a13
#define P15 P14, gex_AM_Arg_t a14
#define P16 P15, gex_AM_Arg_t a15
#define V0
#define V1 V0, value(0)
#define V2 V1, value(1)
#define V3 V2, value(2)
#define V4 V3, value(3)
#define V5 V4, value(4)
#define V6 V5, value(5)
#define V7 V6, value(6)
#define V8 V7, value(7)
#define V9 V8, value(8)
#define V10 V9, value(9)
#define V11 V10, value(10)
#define V12 V11, value(11)
#define V13 V12, value(12)
#define V14 V13, value(13)
#define V15 V14, value(14)
#define V16 V15, value(15)
#define U0
#define U1 U0, a0
#define U2 U1, a1
#define U3 U2, a2
#define U4 U3, a3
#define U5 U4, a4
#define U6 U5, a5
#define U7 U6, a6
#define U8 U7, a7
#define U9 U8, a8
#define U10 U9, a9
#define U11 U10, a10
#define U12 U11, a11
#define U13 U12, a12
#define U14 U13, a13
#define U15 U14, a14
#define U16 U15, a15
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) \
    X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16)

#endif
