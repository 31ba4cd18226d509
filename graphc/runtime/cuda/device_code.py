"""Kernels of the runtime itself, as PTX that the driver assembles: what loops on the device need.

decide(handle, verdict, looks, cancel, status, row)   the condition of a node, from a verdict
begin(state, row)                                     no round is done; the verdict: there are some
advance(state, total, row)                            one more round is done; are there more?
move(table, blocks, state, back, row)                 copy windows near, or back

A state is the number of rounds and, 8 bytes on, a verdict.  `looks` is a word for the time of a
loop's latest look, or 0 for a choice: a millisecond later it is seen whether the run is cancelled,
which is noted as kernels note that they fail (row << 32 | -1, which is CANCELLED), or a kernel has
failed, and the loop ends.  Those words may lie in memory of the host, far away.

A window has four words of a table: where it is near, where it is far in round 0, how far it moves
in a round, and its bytes.  So many blocks copy each, by the widest words that fit all of it.
"""

from __future__ import annotations

WINDOW_BYTES = 32

CODE = """
.version 8.0
.target sm_75
.address_size 64

.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);

.visible .entry decide (
    .param .u64 handle, .param .u64 verdict, .param .u64 looks, .param .u64 cancel,
    .param .u64 status, .param .u64 row
)
{
    .reg .pred %is, %rare;
    .reg .b32 %byte, %value;
    .reg .b64 %handle, %at, %looks, %count, %word, %row;

    ld.param.u64 %handle, [handle];
    ld.param.u64 %at, [verdict];
    ld.param.u64 %looks, [looks];
    ld.global.u8 %byte, [%at];
    setp.ne.u32 %is, %byte, 0;
    selp.u32 %value, 1, 0, %is;
    setp.eq.u64 %rare, %looks, 0;
    @%rare bra SET;
    ld.global.u64 %word, [%looks];
    mov.u64 %count, %globaltimer;
    sub.u64 %word, %count, %word;
    setp.lt.u64 %rare, %word, 1000000;
    @%rare bra SET;
    st.global.u64 [%looks], %count;
    ld.param.u64 %at, [cancel];
    ld.volatile.global.u64 %word, [%at];
    ld.param.u64 %at, [status];
    ld.volatile.global.u64 %count, [%at];
    or.b64 %row, %word, %count;
    setp.ne.u64 %is, %row, 0;
    selp.u32 %value, 0, %value, %is;
    setp.eq.u64 %rare, %word, 0;
    @%rare bra SET;
    setp.ne.u64 %rare, %count, 0;
    @%rare bra SET;
    ld.param.u64 %row, [row];
    shl.b64 %row, %row, 32;
    or.b64 %row, %row, 4294967295;
    st.volatile.global.u64 [%at], %row;
SET:
    {
        .param .b64 parameter0;
        .param .b32 parameter1;
        st.param.b64 [parameter0], %handle;
        st.param.b32 [parameter1], %value;
        call.uni cudaGraphSetConditional, (parameter0, parameter1);
    }
    ret;
}

.visible .entry begin (.param .u64 state, .param .u64 row)
{
    .reg .b32 %one;
    .reg .b64 %state, %none;

    ld.param.u64 %state, [state];
    mov.u64 %none, 0;
    mov.u32 %one, 1;
    st.global.u64 [%state], %none;
    st.global.u8 [%state+8], %one;
    ret;
}

.visible .entry advance (.param .u64 state, .param .u64 total, .param .u64 row)
{
    .reg .pred %is;
    .reg .b32 %more;
    .reg .b64 %state, %total, %count;

    ld.param.u64 %state, [state];
    ld.param.u64 %total, [total];
    ld.global.u64 %count, [%state];
    add.u64 %count, %count, 1;
    st.global.u64 [%state], %count;
    setp.lt.u64 %is, %count, %total;
    selp.u32 %more, 1, 0, %is;
    st.global.u8 [%state+8], %more;
    ret;
}

.visible .entry move (
    .param .u64 table, .param .u64 blocks, .param .u64 state, .param .u64 back, .param .u64 row
)
{
    .reg .pred %is;
    .reg .b32 %blocks, %block, %window, %lane, %lanes, %a, %b, %c, %d;
    .reg .b64 %word, %table, %near, %far, %move, %size, %round, %at, %step, %bits, %from, %to;

    ld.param.u64 %word, [blocks];
    cvt.u32.u64 %blocks, %word;
    mov.u32 %block, %ctaid.x;
    div.u32 %window, %block, %blocks;
    rem.u32 %block, %block, %blocks;
    ld.param.u64 %table, [table];
    mad.wide.u32 %table, %window, 32, %table;
    ld.global.u64 %near, [%table];
    ld.global.u64 %far, [%table+8];
    ld.global.u64 %move, [%table+16];
    ld.global.u64 %size, [%table+24];
    ld.param.u64 %word, [state];
    ld.global.u64 %round, [%word];
    mad.lo.u64 %far, %round, %move, %far;
    mov.u32 %lane, %tid.x;
    mov.u32 %lanes, %ntid.x;
    mad.lo.u32 %lane, %block, %lanes, %lane;
    mul.lo.u32 %lanes, %lanes, %blocks;
    cvt.u64.u32 %at, %lane;
    cvt.u64.u32 %step, %lanes;
    or.b64 %bits, %near, %far;
    or.b64 %bits, %bits, %size;
    ld.param.u64 %word, [back];
    setp.ne.u64 %is, %word, 0;
    selp.b64 %from, %near, %far, %is;
    selp.b64 %to, %far, %near, %is;

    and.b64 %word, %bits, 15;
    setp.ne.u64 %is, %word, 0;
    @%is bra SHORT;
    shl.b64 %at, %at, 4;
    shl.b64 %step, %step, 4;
LONG_NEXT:
    setp.ge.u64 %is, %at, %size;
    @%is bra END;
    add.u64 %word, %from, %at;
    ld.global.v4.u32 {%a, %b, %c, %d}, [%word];
    add.u64 %word, %to, %at;
    st.global.v4.u32 [%word], {%a, %b, %c, %d};
    add.u64 %at, %at, %step;
    bra LONG_NEXT;

SHORT:
    and.b64 %word, %bits, 3;
    setp.ne.u64 %is, %word, 0;
    @%is bra BYTE;
    shl.b64 %at, %at, 2;
    shl.b64 %step, %step, 2;
SHORT_NEXT:
    setp.ge.u64 %is, %at, %size;
    @%is bra END;
    add.u64 %word, %from, %at;
    ld.global.u32 %a, [%word];
    add.u64 %word, %to, %at;
    st.global.u32 [%word], %a;
    add.u64 %at, %at, %step;
    bra SHORT_NEXT;

BYTE:
    setp.ge.u64 %is, %at, %size;
    @%is bra END;
    add.u64 %word, %from, %at;
    ld.global.u8 %a, [%word];
    add.u64 %word, %to, %at;
    st.global.u8 [%word], %a;
    add.u64 %at, %at, %step;
    bra BYTE;
END:
    ret;
}
"""
