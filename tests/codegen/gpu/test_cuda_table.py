"""The CUDA column of the op table: each cell follows from how the op lowers, and none is blank."""

from __future__ import annotations

import pytest

import graphc as gc
from graphc.ir.op import OPS, Alias, Composite, Contraction, Library, Op, Structural

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
from gpu_launches import chosen, launches_of_op

gc.sum  # noqa: B018  a public name fills the op table

TABLE = dict(OPS)  # before other tests define ops
SAMPLED = sorted(
    name for name, op in TABLE.items() if op.samples is not None and not op.traits.on_cpu
)
# Ops that are no work of their own, and what becomes of them on a GPU.
WITHOUT_KERNEL = {
    "param": "memory that a run is given",
    "const": "memory that is copied to the device once",
    "tuple": "names of the memory of its parts",
    "item": "the memory of one part",
    "workspace": "a piece of the arena",
    "fused": "the kernels of its region",
    "blocked": "rows that the walker repeats, with moving base addresses",
    "pack": "left out: packed layouts are for the caches of a CPU",
    "unpack": "left out: packed layouts are for the caches of a CPU",
    "call": "its graph, inlined or called by the walker of rows",
    "grad": "expanded before placement",
    "cond": "rows that are taken or skipped, by a byte of device memory",
    "while": "rows that are repeated, by a byte of device memory",
    "scan": "one kernel, or rows that are repeated, with moving base addresses",
    "stack": "blocks of device memory that the walker knows",
    "push": "a copy within the device",
    "pop": "an address",
    "read": "the memory of a variable",
    "assign": "the memory of a variable, or a copy to it",
    "print": "none: it calls Python, and is placed on a CPU",
    "assert": "none: it calls Python, and is placed on a CPU",
    "callback": "none: it calls Python, and is placed on a CPU",
    "resource": "none: it calls Python, and is placed on a CPU",
    "summary": "none: it calls Python, and is placed on a CPU",
    "phased": "none: a program of its own takes its place, which `outlined` calls",
    "outlined": "none: it calls Python, and is placed on a CPU",
    **dict.fromkeys(
        ("all_reduce", "reduce_to", "to_all", "all_gather", "reduce_scatter", "all_to_all"),
        "none: `route_collectives` writes it with other ops and messages",
    ),
    "send": "an asynchronous copy from the device, or to another one",
    "recv": "an asynchronous copy to the device",
}


def cell(op: Op) -> str:
    """How an op is run by a GPU; empty if nothing is known."""
    match op.lower:
        case Structural():
            return WITHOUT_KERNEL.get(op.name, "")
        case Alias():
            return "the memory of its operand"
        case Composite():
            return "the kernels of its ops"
        case Contraction():
            return "generated: a product in tiles"
        case Library(cuda=None, units=None):
            return "the function of the CPU, run by one thread"
        case Library(cuda=None):
            return "the function of the CPU, run by a thread for each unit"
        case Library():
            return "device code of its own"
        case None:
            return ""
    return "generated: loops over lanes"


def test_no_cell_is_blank() -> None:
    assert [name for name, op in TABLE.items() if not cell(op)] == []
    assert set(WITHOUT_KERNEL) == {n for n, op in TABLE.items() if isinstance(op.lower, Structural)}


@pytest.mark.parametrize("name", SAMPLED)
def test_cell_is_what_a_gpu_runs(name: str) -> None:
    """Ops that need kernels have some, and those with device code of their own run that."""
    op = TABLE[name]
    launches = launches_of_op(name, chosen(op.samples()))
    assert bool(launches) != isinstance(op.lower, Alias) or op.traits.collective
    homes = [str(x.make().__module__) for x in launches.values()]
    own = [home.startswith("graphc.ops.") and home.endswith("_cuda") for home in homes]
    if isinstance(op.lower, Library):
        assert all(own) if op.lower.cuda is not None else not any(own)
