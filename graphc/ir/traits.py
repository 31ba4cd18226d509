"""Traits: what an op is, as far as passes, code generation and the runtime need to know.

A trait is declared once, where the op is (`graphc/ops`), and asked in place of the op's name:

    if node.op.traits.loop: ...          a `while` or a `scan`, or whatever else carries values

An op that is added takes part in every rewrite that asks for the traits it has.  What else an op
is stands in its record: its effect says how it touches state and channels, its lowering how it
becomes code (element-wise, index lambda, reduction, contraction, alias ...).
"""

from __future__ import annotations

from graphc.base.record import record


@record(frozen=True)
class Traits:
    """What an op is.  Those that are not said are false.

    Values that nothing computes:
    parameter        what a graph is given
    constant         literal data
    stored           data of the program itself: literals, as they are or packed
    resident         its value was there before the graph runs: stored, or a variable's
    idle             no code runs for it: its value lies there, or is made of others' places
    makes_tuple      several values as one
    item             one result of a node that has several
    workspace        memory without content, for the kernel that reads it

    Regions:
    kernel           its region is one kernel
    blocks           its region is kernels that run block by block
    call             runs its region as if that stood in its place
    once             runs its first region exactly once
    phased           runs its region phase by phase, which counts `counts`, sizes of its own
    branch           runs one region on its last operands; the operands before choose which
    loop             runs its last region again and again on `carries` values that this returns
    tested           of a loop: its first region says whether to go on
    counted          of a loop: `length` times, on slices of `scanned` operands, stacking results
    asks_gradient    stands for derivatives of its region
    custom_gradient  its second region is the derivative of the first
    lanes            runs its region once for each slice of some operands, all at once
    in_stages        runs its regions on chunks of a batch, cut into stages on several devices

    Messages and stacks:
    send, recv       the two ends of a channel
    collective       what several devices do together, with a value on each
    makes_stack      a new stack
    push, pop        change a stack in place

    What rewrites respect or follow:
    on_cpu           only a CPU computes it
    distinct         equal nodes are still different values
    opaque           its first operand, which rewrites must not see through
    exact            what it reads crosses between devices without losing bits
    wide             products read its result in full, whatever the precision
    unpacks          its operand, which lies packed in memory, as the array that was packed
    reshapes         the elements in the same order, in another shape
    permutes         the axes in the order `perm`
    slices           a part by `starts` and `steps`
    writes_slice     its first operand with the second as its part by `starts` and `steps`
    broadcasts       its operand, repeated
    pads             its first operand, with the second around and between its elements
    joins            its operands, one behind the other along `axis`
    casts            the same numbers in another dtype
    matrix_product   products of elements summed over shared axes, of whole operands
    convolution      such products of windows with a filter
    windows          products of windows, of a few channels at a time, summed one by one
    channels_last    its images hold the channels of a pixel side by side
    few_bits         rows times a matrix of few bits, as its words lie
    pools            what is taken of each window, or what goes back to windows
    checks           its operands, which may stop the run
    makes_last       with the attribute `alone` the last of its results, and nothing else
    """

    parameter: bool = False
    constant: bool = False
    stored: bool = False
    resident: bool = False
    idle: bool = False
    makes_tuple: bool = False
    item: bool = False
    workspace: bool = False
    kernel: bool = False
    blocks: bool = False
    call: bool = False
    once: bool = False
    phased: bool = False
    branch: bool = False
    loop: bool = False
    tested: bool = False
    counted: bool = False
    asks_gradient: bool = False
    custom_gradient: bool = False
    lanes: bool = False
    in_stages: bool = False
    send: bool = False
    recv: bool = False
    collective: bool = False
    makes_stack: bool = False
    push: bool = False
    pop: bool = False
    on_cpu: bool = False
    distinct: bool = False
    opaque: bool = False
    exact: bool = False
    wide: bool = False
    unpacks: bool = False
    reshapes: bool = False
    permutes: bool = False
    slices: bool = False
    writes_slice: bool = False
    broadcasts: bool = False
    pads: bool = False
    joins: bool = False
    casts: bool = False
    matrix_product: bool = False
    convolution: bool = False
    windows: bool = False
    channels_last: bool = False
    few_bits: bool = False
    pools: bool = False
    checks: bool = False
    makes_last: bool = False


NONE = Traits()
