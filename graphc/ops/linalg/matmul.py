"""Matrix products: one contraction op for stacks of matrices, the NumPy functions around it."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import Contraction, Op
from graphc.ir.sizes import Size
from graphc.ir.traits import Traits
from graphc.ir.types import BOOL, I32, AnyType, Dim, DType, Type, definitely_different, tensor
from graphc.ops.record.arguments import Applied, Array, ArrayLike
from graphc.ops.record.batching import Lanes, elementwise, reshaped
from graphc.ops.record.dims import rank_of, row_major_strides, samples_of, shape_of
from graphc.ops.record.families import (
    REAL,
    broadcast_dims,
    define,
    require,
    require_dtype,
    require_tensor,
)
from graphc.ops.record.value import Value, common_element, emit, emit_promoted, functions, public
from graphc.ops.shape.shape import reshape

Dims = list[tuple[str, int, int, int, int]]


def contraction_types(name: str, a: AnyType, b: AnyType) -> tuple[Type, Type]:
    """Two real tensors of one dtype. Raises TypeRuleError."""
    require_tensor(name, a, b)
    assert isinstance(a, Type)
    assert isinstance(b, Type)
    require_dtype(name, a, REAL)
    require(
        a.dtype is b.dtype,
        f"{name}: operand dtypes {a.dtype} and {b.dtype} differ",
        hint="insert a cast",
    )
    return a, b


def accumulable(array: Array) -> Any:
    """Operands of a reference contraction in the dtype it accumulates in (f32 for f16 and bf16)."""
    return (
        array.astype(np.float32)
        if array.dtype.itemsize == 2 and array.dtype.kind in "fV"
        else array
    )


# ------------------------------------------------------------------------------------ matmul


def _infer_matmul(a: AnyType, b: AnyType) -> Type:
    a, b = contraction_types("matmul", a, b)
    require(a.rank >= 2 and b.rank >= 2, f"matmul takes stacks of matrices, got {a} and {b}")
    if definitely_different(a.shape[-1], b.shape[-2]):
        raise TypeRuleError(
            f"matmul: {a} has {a.shape[-1]} columns but {b} has {b.shape[-2]} rows",
            hint="transpose an operand, or check which axis is contracted",
        )
    batch = broadcast_dims([a.shape[:-2], b.shape[:-2]])
    return tensor(a.dtype, (*batch, a.shape[-2], b.shape[-1]))


def _matmul_dims(node: Applied) -> Dims:
    """Stack axes that only one operand has are rows or columns of one larger product."""
    (a, b), c = (n.type.dims for n in node.inputs), node.type.dims
    strides_a, strides_b, strides_c = map(row_major_strides, (a, b, c))
    found: Dims = []
    for axis in range(-len(c), -2):
        in_a = strides_a[axis] if len(a) >= -axis and a[axis] != 1 else 0
        in_b = strides_b[axis] if len(b) >= -axis and b[axis] != 1 else 0
        role = "batch" if in_a and in_b else "n" if in_b else "m"
        if c[axis] != 1:
            found.append((role, c[axis], in_a, in_b, strides_c[axis]))
    found.append(("m", c[-2], strides_a[-2], 0, strides_c[-2]))
    found.append(("n", c[-1], 0, strides_b[-1], strides_c[-1]))
    found.append(("k", a[-1], strides_a[-1], strides_b[-2], 0))
    return found


def contraction_cost(node: Any) -> tuple[float, float]:
    """Two flops per term of every sum; every operand read and the result written once."""
    flops = 2.0
    for _, extent, *_ in node.op.lower.dims(node):
        flops *= extent
    return flops, float(sum(n.type.nbytes for n in node.inputs) + node.type.nbytes)


def left_gradient(ct: Value, a: Value, b: Value) -> Any:
    """ct b^T for the product a b, as a contraction of the arrays as they lie that also sums over
    the axes of the stack along which a was broadcast.
    """
    whole = shape_of(ct)
    (made, dense), (second, right) = (
        _named_axes(x, whole, ends) for x, ends in ((ct, "IJ"), (b, "KJ"))
    )
    first, _ = _named_axes(a, whole, "IK")
    return reshape(emit("einsum", dense, right, equation=f"{made},{second}->{first}"), shape_of(a))


def right_gradient(ct: Value, a: Value, b: Value) -> Any:
    """a^T ct for the product a b, likewise."""
    whole = shape_of(ct)
    (first, left), (made, dense) = (
        _named_axes(x, whole, ends) for x, ends in ((a, "IK"), (ct, "IJ"))
    )
    second, _ = _named_axes(b, whole, "KJ")
    return reshape(emit("einsum", left, dense, equation=f"{first},{made}->{second}"), shape_of(b))


def _matmul_gradient(ct: Value, result: Value, a: Value, b: Value) -> tuple[Any, Any]:
    return left_gradient(ct, a, b), right_gradient(ct, a, b)


def _named_axes(x: Value, whole: Sequence[int | Dim], ends: str) -> tuple[str, Any]:
    """Stacked matrices without the axes of the stack that have extent 1, and letters for the rest;
    the stack's are the same in all arrays that broadcast to one shape. An open extent that is the
    whole one is that for 1, too.
    """
    dims = shape_of(x)
    lead = len(whole) - len(dims)
    kept = [
        k
        for k, d in enumerate(dims[:-2])
        if (isinstance(d, Size) and d is whole[lead + k]) or d != 1
    ]
    letters = [ascii_lowercase[lead + k] for k in kept]
    return "".join(letters) + ends, reshape(x, (*(dims[k] for k in kept), *dims[-2:]))


def _batch_matmul(op: Op, lanes: Lanes, a: Value, b: Value) -> Any:
    """A row or a column per lane, times a matrix for all of them, is a row of one product."""
    ranks = (a.ndim - lanes.mapped[0], b.ndim - lanes.mapped[1])
    if ranks == (2, 2) and not lanes.mapped[1] and a.shape[1] == 1:
        made = emit(op, reshaped(a, (a.shape[0], a.shape[2])), b)
        return reshaped(made, (lanes.size, 1, b.shape[1]))
    if ranks == (2, 2) and not lanes.mapped[0] and b.shape[2] == 1:
        columns = reshaped(b, b.shape[:2])
        made = emit("einsum", columns, a, equation="aK,IK->aI")
        return reshaped(made, (lanes.size, a.shape[0], 1))
    return elementwise(op, lanes, a, b)


matmul_op = define(
    "matmul",
    batch=_batch_matmul,
    infer=_infer_matmul,
    reference=lambda a, b: np.matmul(accumulable(a), accumulable(b)).astype(a.dtype),
    lower=Contraction(_matmul_dims),
    dtypes=REAL,
    gradient=_matmul_gradient,
    cost=contraction_cost,
    samples=samples_of(
        [
            ([(3, 4), (4, 5)], {}),
            ([(2, 3, 4), (4, 5)], {}),
            ([(2, 1, 3, 4), (5, 4, 2)], {}),
            ([(3, 0), (0, 4)], {}),
            ([(33, 65), (65, 17)], {}),
            ([(1, 7), (7, 1)], {}),
        ],
        [([(3, 4), (3, 4)], {}), ([(4,), (4, 2)], {}), ([(2, 3, 4), (3, 4, 5)], {})],
        dtypes=REAL,
        tolerance=4.0,
    ),
    doc="Products of stacks of matrices; the leading axes broadcast. Integers wrap; f16 and bf16 "
    "accumulate in f32 and round once.",
    traits=Traits(matrix_product=True),
)


def contract(op: str, a: ArrayLike, b: ArrayLike, **attrs: Any) -> Any:
    """A two-operand contraction on any dtype: bool through integers, complex through its parts."""
    element = common_element(a, b)[0]
    if element is BOOL:
        counts = emit_promoted(op, a, b, element=I32, **attrs)
        return functions.not_equal(counts, 0)
    if element.is_complex:
        return _complex_contract(op, a, b, element, attrs)
    return emit_promoted(op, a, b, **attrs)


def _complex_contract(
    op: str, a: ArrayLike, b: ArrayLike, element: DType, attrs: dict[str, Any]
) -> Any:
    def product(x: ArrayLike, y: ArrayLike) -> Any:
        return emit_promoted(op, x, y, element=element.real, **attrs)

    (ar, ai), (br, bi) = (_parts(x) for x in (a, b))
    if ai is None or bi is None:
        imag = product(ar, bi) if ai is None else product(ai, br)
        return functions.complex(product(ar, br), imag)
    real = product(ar, br) - product(ai, bi)
    return functions.complex(real, product(ar, bi) + product(ai, br))


def _parts(x: ArrayLike) -> tuple[Any, Any]:
    """The real and the imaginary part, None for that of a real array."""
    if not common_element(x)[0].is_complex:
        return x, None
    return functions.real(x), functions.imag(x)


def _require_meeting(a: ArrayLike, b: ArrayLike) -> None:
    """A vector is not what its product is computed of: errors show it as it was written."""
    columns, rows = shape_of(a)[-1], shape_of(b)[-2 if rank_of(b) > 1 else -1]
    if definitely_different(columns, rows):
        shown, other = (f"{common_element(x)[0]}{list(shape_of(x))}" for x in (a, b))
        raise TypeRuleError(
            f"matmul: {shown} has {columns} {_along(a, 'columns')} but {other} has {rows} "
            f"{_along(b, 'rows')}",
            hint="transpose an operand, or check which axis is contracted",
        )


def _along(x: ArrayLike, axis: str) -> str:
    return axis if rank_of(x) > 1 else "elements"


@public(np.matmul, method=True)
def matmul(a: ArrayLike, b: ArrayLike) -> Any:
    """a @ b as NumPy: vectors count as a row on the left and a column on the right."""
    left, right = rank_of(a), rank_of(b)
    require(left > 0 and right > 0, "matmul does not take scalars", hint="use *")
    if 1 in (left, right):
        _require_meeting(a, b)
    made = contract(
        "matmul", reshape(a, 1, -1) if left == 1 else a, reshape(b, -1, 1) if right == 1 else b
    )
    dims = list(shape_of(made))
    if right == 1:
        del dims[-1]
    if left == 1:
        del dims[-1 if right == 1 else -2]
    return reshape(made, tuple(dims))
