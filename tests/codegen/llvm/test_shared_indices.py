"""What loops share is computed ahead of them, and what a statement writes makes values stale."""

from __future__ import annotations

from graphc.codegen.llvm.shared_indices import SharedIndices
from graphc.codegen.nest_walk import Readers
from graphc.ir.types import F32, I64
from graphc.loops.facts import Changes
from graphc.loops.nest import Buffer, For, Kernel, Scalars, Store


def nest() -> tuple[Kernel, For, For, Store]:
    """for i in 0..8: for j in 0..64: a1[64*i + j] = a0[(i + 3)*64 + j] + a1[j]"""
    b = Scalars()
    source, sink = Buffer(0, F32, 704, "in"), Buffer(1, F32, 512, "inout")
    with b.loop(8, "serial") as i, b.loop(64, "serial") as j:
        width, ahead = b.const(64, I64), b.op("add", i, b.const(3, I64))
        read = b.load(source, b.op("add", b.op("mul", ahead, width), j))
        place = b.op("add", b.op("mul", i, width), j)
        b.store(sink, place, b.op("add", read, b.load(sink, j)))
    (outer,) = b.body
    assert isinstance(outer, For)
    (inner,) = outer.body
    assert isinstance(inner, For)
    (store,) = inner.body
    assert isinstance(store, Store)
    return Kernel("k0", (source, sink), 0, b.body), outer, inner, store


def test_the_largest_parts_that_no_iteration_changes() -> None:
    _, outer, inner, store = nest()
    indices = store.index, *(load.args[0] for load in store.value.args)
    rows = {arg for index in indices for arg in index.args if arg.op == "mul"}
    assert len(rows) == 2
    shared = SharedIndices()
    found = shared.indices(inner.body, {outer.variable})
    assert set(found) == rows
    assert shared.indices(outer.body, set()) == []
    # asked again, with more known, it answers anew: of what is known whole, roots are the largest
    known = {outer.variable, inner.variable}
    assert set(shared.indices(inner.body, known)) >= {store.index}


def test_what_reads_a_buffer_is_stale_once_it_is_written() -> None:
    kernel, _, _, store = nest()
    total = store.value
    fixed, written = total.args
    readers = Readers(Changes(kernel))
    for expr in (fixed, written, total):
        readers.add(expr)
    assert set(readers.stale(store)) == {written, total}
    assert list(readers.stale(store)) == []
    readers.add(total)
    assert list(readers.stale(store)) == [total]
