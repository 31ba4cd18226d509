"""Kernels of library ops that are written as LLVM IR: which node has one on which machine.

Those of sorts are imported with this file, the others when a node wants one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.base.record import record
from graphc.codegen.llvm.target import Target
from graphc.codegen.sorting.digits import Rows, digits_text, least_text, scratch_of
from graphc.codegen.sorting.order import order_text
from graphc.codegen.sorting.places import places_text
from graphc.codegen.sorting.quicksort import block_of, sort_text
from graphc.codegen.sorting.select import MOST, select_text
from graphc.codegen.tuning import tuned
from graphc.ir.op import Library
from graphc.ir.sizes import Size
from graphc.ops.index.scatter import is_shared

_Make = Callable[[Any, Target], "Native | None"]

LINE = 64  # bytes; also what a vector may write behind the last key


@record(frozen=True)
class Native:
    """A kernel as LLVM IR, the bytes of scratch of each thread, and its params.

    One that is not cut looks at the cancel flag as often as it has to, whatever its units.
    """

    text: str
    scratch: int
    params: tuple[int, ...]
    is_cut: bool = True

    @property
    def has_scratch(self) -> bool:
        return isinstance(self.scratch, Size) or self.scratch > 0


def native_of(node: Any, target: Target) -> Native | None:
    """The kernel of a node with a library op, if this machine has one."""
    lower = node.op.lower
    make = _KERNELS.get(lower.native) if isinstance(lower, Library) else None
    return make(node, target) if make is not None else None


def _scatter(node: Any, target: Target) -> Native:
    from graphc.codegen.scatter import Scatter, scatter_text

    x, index = (node.inputs[k].type for k in (0, 1))
    rows, width, drop = node.op.lower.params(node)
    kind = Scatter(x.dtype, index.dtype, node.attrs["mode"], width == 1, is_shared(node))
    return Native(scatter_text(target, kind), 0, (rows, width, index.size, drop), is_cut=False)


def _gcd(node: Any, target: Target) -> Native:
    from graphc.codegen.gcd import gcd_text

    return Native(gcd_text(target, node.type.dtype.kind == "i"), 0, ())


def _occurrences(node: Any, target: Target) -> Native:
    from graphc.codegen.occurrences import SCRATCH, occurrences_text

    x = node.inputs[0].type
    text = occurrences_text(target, x.dtype)
    return Native(text, SCRATCH, (x.size, *node.op.lower.params(node)), is_cut=False)


def _adjoint(node: Any, target: Target) -> Native:
    from graphc.codegen.sparse_adjoint import Adjoint, adjoint_text

    data, indices, indptr = (node.inputs[k].type for k in range(3))
    text = adjoint_text(target, Adjoint(data.dtype, indices.dtype, indptr.dtype))
    return Native(text, 0, (*node.op.lower.params(node), indices.size), is_cut=False)


def _by_digits(node: Any, target: Target) -> Native | None:
    keys, length = node.inputs[0].type.dtype, node.type.dims[-1]
    if node.op.lower.loops(node) is not None:
        return None
    kind = Rows(keys.bits, node.op.lower.native == "order")
    scratch = scratch_of(kind, length)
    return Native(digits_text(target, kind), scratch, (length, scratch))


def _sort(node: Any, target: Target) -> Native | None:
    keys, length = node.inputs[0].type.dtype, node.type.dims[-1]
    if keys.bits < 32 or target.vector_bits < 256:
        return _by_digits(node, target)
    is_short = not isinstance(length, Size) and length * keys.itemsize <= tuned.lane_sorted_row
    if is_short and node.op.lower.loops(node) is not None:
        return None  # rows side by side, one in a lane
    scratch = -(-length * keys.itemsize // LINE) * LINE + LINE
    return Native(sort_text(target, keys.bits), scratch, (length, scratch))


def _select(node: Any, target: Target) -> Native | None:
    keys, wanted = node.inputs[0].type, node.attrs["k"]
    assert wanted > 0
    if keys.dtype.bits < 32 or wanted > MOST or target.vector_bits < 256:
        return Native(least_text(target, keys.dtype.bits), 0, (keys.dims[-1], wanted))
    is_short = 2 * wanted <= block_of(target, keys.dtype.bits)
    text = select_text(target, keys.dtype.bits, is_short)
    return Native(text, 0, (keys.dims[-1], wanted))


def _order(node: Any, target: Target) -> Native | None:
    keys, length = node.inputs[0].type.dtype, node.type.dims[-1]
    is_long = not isinstance(length, Size) and length >= 1 << 32  # a row's cut bits fit twice
    if keys.bits < 32 or is_long or target.vector_bits < 256:
        return _by_digits(node, target)
    if node.op.lower.loops(node) is not None:
        return None
    scratch = -(-length * 8 // LINE) * LINE + LINE
    return Native(order_text(target, keys.bits), scratch, (length, scratch))


def _places(node: Any, target: Target) -> Native:
    return Native(places_text(target), 0, (node.inputs[0].type.size, node.attrs["size"]))


_KERNELS: dict[str, _Make] = {
    "gcd": _gcd,
    "occurrences": _occurrences,
    "scatter": _scatter,
    "sparse_adjoint": _adjoint,
    "sort": _sort,
    "order": _order,
    "select": _select,
    "places": _places,
}
