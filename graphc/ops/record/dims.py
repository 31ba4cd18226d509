"""Shapes: of operands, of results, and the index arithmetic between them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import Sample
from graphc.ir.sizes import Size, at_most
from graphc.ir.types import I64, U64, AnyType, Dim, Dimension, DType, Type, definitely_equal
from graphc.loops.nest import Expr, Scalars
from graphc.loops.scalars import Pair, maximum, minimum
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.families import ALL, require, require_tensor, sample_array
from graphc.ops.record.ranges import decided
from graphc.ops.record.value import Value, array_of, as_value, holds_values, is_python_number

Shape = tuple[Dimension, ...]


def samples_of(
    good: Sequence[tuple[Sequence[tuple[int, ...]], dict[str, Any]]],
    bad: Sequence[tuple[Sequence[tuple[int, ...]], dict[str, Any]]] = (),
    dtypes: Sequence[str] = ALL,
    tolerance: float = 1.0,
) -> Callable[[], list[Sample]]:
    """A sample factory from (operand shapes, attributes).

    The first good case runs on every dtype, the others on f32 (or the first dtype of the list).
    """

    def make() -> list[Sample]:
        usual = "f32" if "f32" in dtypes else dtypes[0]
        made = []
        for number, (shapes, attrs) in enumerate(good):
            for name in dtypes if number == 0 else (usual,):
                arrays = (sample_array(name, s, (-4, 4), k) for k, s in enumerate(shapes))
                made.append(Sample(tuple(arrays), attrs, tolerance=tolerance))
        for shapes, attrs in bad:
            arrays = (sample_array(usual, s, (-4, 4), k) for k, s in enumerate(shapes))
            made.append(Sample(tuple(arrays), attrs, good=False))
        return made

    return make


def shape_of(x: Any) -> Shape:
    """The shape of a value, an array, a number or lists of them. Raises GraphError for others."""
    if isinstance(x, Value):
        return x.shape
    if holds_values(x):
        x = as_value(x)
    found: Shape = np.shape(x if hasattr(x, "shape") or is_python_number(x) else array_of(x))
    return found


def as_shape(shape: Any) -> Shape:
    """Extents given as a sequence, or as one number of a single axis, which may be open."""
    if isinstance(shape, Dim | Size):
        return (shape,)
    if isinstance(shape, Value):
        return (operator.index(shape),)  # which says that it has no value yet
    if isinstance(shape, int | np.integer):
        return (int(shape),)
    return tuple(operator.index(d) if isinstance(d, Value) else d for d in shape)


def rank_of(x: ArrayLike) -> int:
    """The number of axes of an array, a traced one or a number (0)."""
    return len(shape_of(x))


def size_of(dims: Sequence[Dimension]) -> Dimension:
    """The number of elements, symbolic where a dimension is."""
    total: Dimension = 1
    for extent in dims:
        total = total * extent
    return total


def mode_of_known(extent: Dimension) -> str:
    """How places are taken that are known to be there: clipped, which costs least, unless there may
    be none to clip to."""
    return "raise" if isinstance(extent, Size) else "clip"


def row_major_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a contiguous array."""
    return tuple(math.prod(dims[k + 1 :]) for k in range(len(dims)))


def run_in_memory(
    whole: Sequence[int], part: Sequence[int], starts: Sequence[int], steps: Sequence[int]
) -> int | None:
    """The element of a row-major array at which a part of it by starts and steps begins, if that is
    one run of memory; None for another part."""
    wide = [axis for axis, extent in enumerate(part) if extent != 1]
    if any(steps[axis] != 1 for axis in wide):
        return None
    if wide and tuple(part[wide[0] + 1 :]) != tuple(whole[wide[0] + 1 :]):
        return None  # parts of rows
    return sum(a * s for a, s in zip(starts, row_major_strides(whole), strict=True))


def clamp(x: Expr, low: int, high: int) -> Any:
    """x limited to low..high (both included), as an i64 expression."""
    return maximum(minimum(x, high), low)


def place_of(index: Expr) -> Any:
    """An integer as i64; one that is beyond them is the largest of them."""
    if index.dtype is U64:
        index = minimum(index, 2**63 - 1)
    return index.cast(I64)


def guarded(
    b: Scalars, element: DType, otherwise: Any, cases: Sequence[tuple[Any, Callable[[], Any]]]
) -> Any:
    """The value of the case whose condition holds (they exclude one another), else `otherwise`.

    Unlike `select` it evaluates only that case, so a case may read what is legal under its
    condition alone: the emitters vectorise such reads as masked loads of neighbouring elements,
    where a clamped index would cost a gather.  What is known of the indices decides beforehand.
    """
    cases = [(c, value) for c, value in cases if decided(b, c) is not False]
    certain = [value() for c, value in cases if decided(b, c)]
    if certain or not cases:
        return _stored(b, certain[0] if certain else otherwise, element)
    work = element.real.compute  # registers hold no 16-bit floats
    registers = [b.register(part.cast(work)) for part in _parts(b, otherwise, element)]
    for condition, value in cases:
        with b.when(condition):
            for register, part in zip(registers, _parts(b, value(), element)):
                b.assign(register, part.cast(work))
    read = [b.read(register) for register in registers]
    return _stored(b, Pair(*read) if element.is_complex else read[0], element)


def _stored(b: Scalars, value: Any, element: DType) -> Any:
    """An element, None being zero."""
    parts = [part.cast(element.real) for part in _parts(b, value, element)]
    return Pair(*parts) if element.is_complex else parts[0]


def _parts(b: Scalars, value: Any, element: DType) -> tuple[Any, ...]:
    """An element as real expressions; None is zero."""
    if isinstance(value, Pair):
        return value.re, value.im
    if value is None:
        return (b.const(0, element.real.compute),) * (2 if element.is_complex else 1)
    return (value,)


def inside(index: Expr, begin: int, end: int, extent: int) -> Any:
    """begin <= index < end for an index in 0..extent-1; None where that always holds."""
    after = None if at_most(begin, 0) else index >= begin
    before = None if at_most(extent, end) else index < end
    return both(after, before)


def both(left: Any, right: Any) -> Any:
    """The conjunction of two conditions, None standing for true."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def tensor_type(name: str, x: AnyType) -> Type:
    """The type of a tensor operand. Raises TypeRuleError for a tuple."""
    require_tensor(name, x)
    assert isinstance(x, Type)
    return x


# ------------------------------------------------------------------------------------ reshape


def _missing_extent(source: Shape, known: list[Dimension]) -> Dimension | None:
    """The extent that -1 stands for: the quotient of products, equal symbolic factors cancelled."""
    left, right = list(source), []
    if any(isinstance(extent, Size) and extent == 0 for extent in known):
        return None  # any number would do
    for extent in known:
        match = next(
            (k for k, d in enumerate(left) if isinstance(d, Dim | Size) and d is extent), None
        )
        if match is None:
            right.append(extent)
        else:
            del left[match]
    total, divisor = size_of(left), size_of(right)
    if isinstance(divisor, Size):
        return total // divisor if total % divisor == 0 else None
    if not isinstance(divisor, int) or divisor == 0:
        return 1 if definitely_equal(total, divisor) and divisor != 0 else None
    if isinstance(total, Dim):
        return total.divide(divisor)
    return total // divisor if total % divisor == 0 else None


def resolve_shape(source: Shape, wanted: Sequence[Any]) -> Shape:
    """A shape with at most one -1 replaced by the extent it stands for. Raises TypeRuleError."""
    dims = [d if isinstance(d, Dim | Size) else int(d) for d in wanted]
    unknown = [k for k, d in enumerate(dims) if isinstance(d, int) and d == -1]
    if not unknown:
        return tuple(dims)
    require(len(unknown) == 1, f"reshape: only one dimension can be -1, got {list(wanted)}")
    known = [d for k, d in enumerate(dims) if k != unknown[0]]
    extent = _missing_extent(source, known)
    if extent is None:
        raise TypeRuleError(f"cannot reshape shape {list(source)} to {list(wanted)}")
    dims[unknown[0]] = extent
    return tuple(dims)
