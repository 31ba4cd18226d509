"""Launches that sort: tiles of rows and merges of runs (`sort_cuda.py`), long rows by digits
(`radix_cuda.py`); the k least of long rows are found without sorting those (`select_cuda.py`)."""

from __future__ import annotations

import math
from typing import Any

from graphc.base.record import record
from graphc.ir.op import CudaCall, CudaCode
from graphc.ir.types import DTYPES, I64
from graphc.ops.record.arguments import Applied
from graphc.ops.record.launches import Machine, kernel


@record(frozen=True)
class Pass:
    """One launch: it sorts tiles, or merges runs. `level` counts the launches that follow; it says
    which buffers to read and write, in turns.
    """

    merges: bool
    blocks: int
    params: tuple[int, ...]
    level: int


def tile_pass(rows: int, extent: int, keep: int, machine: Machine, level: int = 0) -> Pass:
    """Sort the tiles of rows and keep the first `keep` of each, or all where that is more."""
    bits = min(machine.tile - 1, extent - 1).bit_length()
    keep = min(keep, 1 << bits)
    whole = (extent - 1) >> bits
    target = whole * keep + min(keep, extent - (whole << bits))
    blocks = -(-rows * (whole + 1) // (machine.tile >> bits))
    return Pass(False, blocks, (extent, bits, keep, target, rows), level)


def passes(rows: int, extent: int, machine: Machine, level: int = 0) -> list[Pass]:
    """The launches that sort rows, the last of them at `level`."""
    per_row = -(-extent // machine.tile)
    merges = (per_row - 1).bit_length()
    made = [tile_pass(rows, extent, machine.tile, machine, level + merges)]
    for number in range(merges):
        params = extent, machine.tile << number
        made.append(Pass(True, rows * per_row, params, level + merges - 1 - number))
    return made


def pass_calls(made: list[Pass], machine: Machine, tiles: str, merge: str) -> tuple[CudaCall, ...]:
    """The passes as launches of two kernels (their texts), which take the level as last param."""
    return tuple(
        CudaCall(merge if p.merges else tiles, p.blocks, machine.sorters, (*p.params, p.level))
        for p in made
    )


def _kernels(name: str, element: Any, count: int, machine: Machine) -> list[str]:
    """The texts of the kernels that a function of sort_cuda makes for keys of a type."""
    key = element.name, machine.tile, machine.sorters
    return [kernel("sort.sort_cuda", name, *key, part=part) for part in range(count)]


def _rows(node: Applied) -> tuple[int, int]:
    dims = node.inputs[0].type.dims
    return math.prod(dims[:-1]), dims[-1]


def _spare(node: Applied, made: list[Pass]) -> int:
    """The elements of a buffer between launches."""
    return node.inputs[0].type.size if len(made) > 1 else 0


# ------------------------------------------------------------------------------------ by digits


def by_digits(node: Applied, machine: Machine) -> bool:
    """Whether rows are so long that moving all keys once for each digit costs less than merging."""
    extent = _rows(node)[1]
    return 4 * machine.tile < extent < 1 << 32 and node.inputs[0].type.dtype.itemsize > 1


def _digit_calls(
    node: Applied, machine: Machine, function: str
) -> tuple[list[CudaCall], list[tuple[Any, int]]]:
    """The launches that sort rows by digits, and the scratch that all of them share."""
    element, (rows, extent) = node.inputs[0].type.dtype, _rows(node)
    named = function == "argsort_kernels"
    threads = machine.scanners
    rounds = max(1, machine.rounds * 4 // max(4, element.itemsize))
    shape = element.name, machine.digit, threads, rounds
    count, run, move, *last = (
        kernel("sort.radix_cuda", function, *shape, part=k) for k in range(4 if named else 3)
    )
    tiles = -(-extent // (threads * rounds))
    digits, passes = 1 << machine.digit, element.bits // machine.digit
    blocks, lines = min(rows * tiles, machine.blocks), min(rows * digits, machine.blocks)
    calls = []
    for number in range(passes):
        level, sizes = passes - 1 - number, (number * machine.digit, extent, tiles, rows)
        params = (*sizes, int(number == 0), level)
        calls += [
            CudaCall(count, blocks, threads, params),
            CudaCall(run, lines, threads, (tiles, rows)),
        ]
        if named and not level:
            calls.append(CudaCall(last[0], blocks, threads, sizes))
        else:
            calls.append(CudaCall(move, blocks, threads, params))
    return calls, [(DTYPES["u32"], rows * digits * tiles), (I64, rows * digits)]


# ------------------------------------------------------------------------------------ sort_keys


def sort_code(node: Applied, strict: bool, machine: Machine) -> CudaCode:
    """Device code of sort_keys."""
    if not node.type.size:
        return CudaCode(())
    if by_digits(node, machine):
        digits, work = _digit_calls(node, machine, "sort_kernels")
        return CudaCode(tuple(digits), ((node.type.dtype, node.type.size), *work))
    element, made = node.type.dtype, passes(*_rows(node), machine)
    calls = pass_calls(made, machine, *_kernels("key_kernels", element, 2, machine))
    return CudaCode(calls, ((element, _spare(node, made)),))


# ------------------------------------------------------------------------------------ argsort_keys


def argsort_code(node: Applied, strict: bool, machine: Machine) -> CudaCode:
    """Device code of argsort_keys."""
    if not node.type.size:
        return CudaCode(())
    if by_digits(node, machine):
        digits, work = _digit_calls(node, machine, "argsort_kernels")
        own = [(kind, node.type.size) for kind in (node.inputs[0].type.dtype, DTYPES["u32"])]
        return CudaCode(tuple(digits), (own[0], own[0], own[1], own[1], *work))
    element, made = node.inputs[0].type.dtype, passes(*_rows(node), machine)
    calls = pass_calls(made, machine, *_kernels("place_kernels", element, 2, machine))
    count = _spare(node, made)
    return CudaCode(calls, ((element, count), (element, count), (I64, count)))


# ------------------------------------------------------------------------------------ topk_keys


def topk_code(node: Applied, strict: bool, machine: Machine) -> CudaCode:
    """Device code of topk_keys."""
    if not node.inputs[0].type.size:
        return CudaCode(())
    element, wanted = node.inputs[0].type.dtype, node.attrs["k"]
    rows, extent = _rows(node)
    if wanted <= machine.tile < extent < 1 << 32:
        return _select(node, element, machine)
    tiles, merge, head = _kernels("topk_kernels", element, 3, machine)
    if 2 * wanted > machine.tile and extent > machine.tile:  # a tile would not leave much less
        sorts, *rest = passes(rows, extent, machine, level=1)
        first = CudaCall(tiles, sorts.blocks, machine.sorters, (1, *sorts.params, sorts.level))
        blocks = -(-rows * wanted // machine.sorters)
        last = CudaCall(head, blocks, machine.sorters, (extent, wanted, rows * wanted))
        calls = (first, *pass_calls(rest, machine, tiles, merge), last)
        return CudaCode(calls, _places_beside(element, rows * extent, rows * extent))
    made = [tile_pass(rows, extent, wanted, machine)]
    while made[-1].params[3] > wanted:
        made.append(tile_pass(rows, made[-1].params[3], wanted, machine))
    levels = range(len(made) - 1, -1, -1)
    odd, even = (
        max((rows * p.params[3] for p, n in zip(made, levels) if n and n % 2 == turn), default=0)
        for turn in (1, 0)
    )
    calls = tuple(
        CudaCall(tiles, p.blocks, machine.sorters, (int(p is made[0]), *p.params, level))
        for p, level in zip(made, levels)
    )
    return CudaCode(calls, _places_beside(element, odd, even))


def _select(node: Applied, element: Any, machine: Machine) -> CudaCode:
    """The launches that find the k least keys of rows, see `select_cuda.py`."""
    wanted, (rows, extent), threads = node.attrs["k"], _rows(node), machine.threads
    keys = 2 * machine.rounds
    shape = element.name, machine.digit, keys, threads
    clear, count, pick = (
        kernel("sort.select_cuda", "search_kernels", *shape, part=part) for part in range(3)
    )
    mark, total, gather = (
        kernel("sort.select_cuda", "gather_kernels", keys, threads, part=part) for part in range(3)
    )
    tile = element.name, machine.tile, machine.sorters
    finish = kernel("sort.select_cuda", "finish_kernel", *tile)
    tiles, lists = -(-extent // (keys * threads)), rows << machine.digit
    counts, totals = lists + rows, lists + rows + 2 * rows * tiles
    made = [CudaCall(clear, -(-lists // threads), threads, (lists,))]
    for above, shift in enumerate(reversed(range(0, element.bits, machine.digit))):
        made += [
            CudaCall(count, rows * tiles, threads, (extent, tiles, shift, above)),
            CudaCall(pick, rows, threads, (rows, wanted, shift, above)),
        ]
    last = tile_pass(rows, wanted, wanted, machine)
    size, bits, *_ = last.params
    made += [
        CudaCall(mark, rows * tiles, threads, (extent, tiles, counts)),
        CudaCall(total, min(2 * rows, machine.blocks), threads, (counts, totals, tiles, rows)),
        CudaCall(gather, rows * tiles, threads, (extent, tiles, wanted, counts, totals)),
        CudaCall(finish, last.blocks, machine.sorters, (size, bits, rows)),
    ]
    words, found = (DTYPES["u32"], totals + 2 * rows), rows * wanted
    return CudaCode(tuple(made), (words, (element, rows), (element, found), (words[0], found)))


def _places_beside(element: Any, odd: int, even: int) -> tuple[tuple[Any, int], ...]:
    return (element, odd), (I64, odd), (element, even), (I64, even)
