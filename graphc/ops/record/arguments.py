"""The types of what the functions of ops take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from graphc.ir.op import Attrs, Op
from graphc.ir.types import Dimension, DType, Type
from graphc.loops.nest import Expr
from graphc.ops.record.value import Stateful, Value

# of public functions
ArrayLike = Value | Stateful | npt.ArrayLike
DTypeLike = DType | npt.DTypeLike
ShapeLike = Dimension | Sequence[Dimension]
Axes = int | Sequence[int] | None

# of references, which get arrays and give them, and of kernels that Numba compiles
Array = np.ndarray[Any, Any]

# of what works on traced values and on arrays, by what both can; a public function that lifts its
# argument (`x = as_value(x)`) states what it is from there on
Tensor = Value | Array

# of lowerings
Index = tuple[Expr, ...]  # one i64 expression for each dimension
Read = Callable[[int, Index], Any]  # operand and index -> Expr, or Pair of what is complex
ReadAt = Callable[[int, Expr], Any]  # operand and row-major position -> Expr
Write = Callable[..., None]  # (number of the result if there are several,) index, element


class Operand(Protocol):
    """A tensor that a node takes."""

    @property
    def op(self) -> Op: ...
    @property
    def type(self) -> Type: ...


class Applied(Protocol):
    """What a lowering sees of a node: its type rule made sure that all are tensors."""

    @property
    def op(self) -> Op: ...
    @property
    def inputs(self) -> Sequence[Operand]: ...
    @property
    def attrs(self) -> Attrs: ...
    @property
    def type(self) -> Type: ...
