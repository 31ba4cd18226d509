"""How each op becomes code for GPUs, in words: the column of the table of ops."""

from __future__ import annotations

from graphc.ir.op import (
    Alias,
    Composite,
    Compute,
    Contraction,
    Library,
    Loops,
    Op,
    Reduction,
    Scalar,
    Structural,
)


def route(op: Op) -> str:
    """The way of an op to a GPU."""
    if op.traits.on_cpu:
        return "a CPU beside it"
    match op.lower:
        case Scalar() | Compute() | Reduction() | Loops(cuda=None):
            return "lanes"
        case Loops():
            return "lanes or device code"
        case Contraction():
            return "tiles"
        case Library(cuda=None, units=None):
            return "one thread"
        case Library(cuda=None):
            return "a thread per unit"
        case Library():
            return "device code"
        case Composite():
            return "its ops"
        case Alias():
            return "no work"
        case Structural():
            return "step table"
