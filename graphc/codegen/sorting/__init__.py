"""Kernels over rows of keys that are written in LLVM's vectors, for the machines that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.base.record import record
from graphc.codegen.llvm.target import Target
from graphc.codegen.sorting.order import order_text
from graphc.codegen.sorting.places import places_text
from graphc.codegen.sorting.quicksort import block_of, sort_text
from graphc.codegen.sorting.select import MOST, select_text
from graphc.ir.op import Library
from graphc.ir.sizes import Size

LINE = 64  # bytes; also what a vector may write behind the last key


@record(frozen=True)
class Native:
    """A kernel as LLVM IR, the bytes of scratch of each thread, and its params."""

    text: str
    scratch: int
    params: tuple[int, ...]

    @property
    def has_scratch(self) -> bool:
        return isinstance(self.scratch, Size) or self.scratch > 0


def native_of(node: Any, target: Target) -> Native | None:
    """The kernel of a node with a library op, if this machine has one."""
    lower = node.op.lower
    make = _KERNELS.get(lower.native) if isinstance(lower, Library) else None
    if make is None or target.vector_bits < 256:
        return None
    return make(node, target)


def _sort(node: Any, target: Target) -> Native | None:
    keys = node.inputs[0].type.dtype
    if keys.bits < 32:
        return None
    length = node.type.dims[-1]
    scratch = -(-length * keys.itemsize // LINE) * LINE + LINE
    return Native(sort_text(target, keys.bits), scratch, (length, scratch))


def _select(node: Any, target: Target) -> Native | None:
    keys, wanted = node.inputs[0].type, node.attrs["k"]
    if keys.dtype.bits < 32 or wanted > MOST:
        return None
    is_short = 2 * wanted <= block_of(target, keys.dtype.bits)
    text = select_text(target, keys.dtype.bits, is_short)
    return Native(text, 0, (keys.dims[-1], wanted))


def _order(node: Any, target: Target) -> Native | None:
    keys, length = node.inputs[0].type.dtype, node.type.dims[-1]
    is_long = not isinstance(length, Size) and length >= 1 << 32  # a row's cut bits fit twice
    if keys.bits < 32 or is_long or node.op.lower.loops(node) is not None:
        return None
    scratch = -(-length * 8 // LINE) * LINE + LINE
    return Native(order_text(target, keys.bits), scratch, (length, scratch))


def _places(node: Any, target: Target) -> Native:
    return Native(places_text(target), 0, (node.inputs[0].type.size, node.attrs["size"]))


_KERNELS: dict[str, Callable[[Any, Target], Native | None]] = {
    "sort": _sort,
    "order": _order,
    "select": _select,
    "places": _places,
}

__all__ = ["Native", "native_of"]
