"""`Gemm`: what a kernel computes, where that is a plain product of matrices.

    D = activation(scale * op(L) op(R) + C + bias)

Matrices are column-major, as BLAS has them: a row-major result is written down as its transpose,
whose left factor is the right one of the graph.  A bias has an element for each row of D.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.base.record import record
from graphc.errors import GraphError

MOST = (1 << 31) - 1  # of rows, columns and matrices
MOST_ELEMENTS = 1 << 46
LEAST_SCALE, MOST_SCALE = 2e-38, 3e38  # an f32
ITEMSIZE = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
# Element types of factors and result; sums are made in f32, those of f64 in f64.
KINDS = (
    ("f32", "f32"),
    ("f64", "f64"),
    ("f16", "f16"),
    ("f16", "f32"),
    ("bf16", "bf16"),
    ("bf16", "f32"),
)
ACTIVATIONS = ("", "relu", "gelu")  # the gelu with tanh


@record(frozen=True)
class Matrix:
    """Where a matrix lies, or one for each number of a batch: element (i, j) of number b is element
    offset + b * step + i + j * lead of a kernel's buffer.  `transposed` ones are read as (j, i).
    """

    operand: int
    offset: int
    lead: int
    step: int = 0
    transposed: bool = False


@record(frozen=True)
class Gemm:
    """A product in place of the last `calls` rows of a table, one after another.

    Operands are those of the last row, of `sizes` bytes each; the rows before it have no others.
    D has `rows` x `columns` elements, each the sum of `depth` products; `batch` of them are made.
    """

    calls: int
    element: str
    result: str
    batch: int
    rows: int
    columns: int
    depth: int
    left: Matrix
    right: Matrix
    target: Matrix
    addend: Matrix | None
    bias: Matrix | None
    activation: str
    scale: float
    sizes: tuple[int, ...]

    @property
    def multiplications(self) -> int:
        return self.batch * self.rows * self.columns * self.depth

    @property
    def matrices(self) -> dict[str, tuple[Matrix, str, int, int]]:
        """Every matrix with its element type, and the rows and columns that lie in memory."""
        rows, columns, depth = self.rows, self.columns, self.depth
        left, right = (rows, depth), (depth, columns)
        left = left[::-1] if self.left.transposed else left
        right = right[::-1] if self.right.transposed else right
        found = {
            "left": (self.left, self.element, *left),
            "right": (self.right, self.element, *right),
            "target": (self.target, self.result, rows, columns),
        }
        if self.addend is not None:
            found["addend"] = (self.addend, self.result, rows, columns)
        if self.bias is not None:
            found["bias"] = (self.bias, self.result, rows, 1)
        return found

    @property
    def listed(self) -> list[Any]:
        """The product as JSON has it."""
        return [_listed(getattr(self, name)) for name in type(self).__match_args__]

    def __str__(self) -> str:
        order = "".join("t" if m.transposed else "n" for m in (self.left, self.right))
        shape = f"{self.rows}x{self.columns}x{self.depth}"
        many = f"{self.batch} of " if self.batch > 1 else ""
        more = [name for name in ("addend", "bias") if getattr(self, name) is not None]
        more += [self.activation] if self.activation else []
        return " ".join([f"{many}{shape} {self.element} -> {self.result} {order}", *more])

    def extent(self, matrix: Matrix, rows: int, columns: int) -> int:
        """Elements from the first to behind the last one of all numbers of the batch."""
        return (self.batch - 1) * matrix.step + (columns - 1) * matrix.lead + rows

    def check(self, room: Sequence[int]) -> None:
        """Raise GraphError for numbers that make no sense or lead out of the operands.

        `room` has the bytes that each operand of the row has at most, -1 where that is not known.
        """
        if self.calls not in (1, 2) or len(self.sizes) != len(room):
            raise _bad(f"{self.calls} calls with {len(self.sizes)} of {len(room)} operands")
        counts = self.batch, self.rows, self.columns, self.depth
        if not all(1 <= count <= MOST for count in counts):
            raise _bad(f"sizes {counts}")
        self._check_kind()
        for size, most in zip(self.sizes, room, strict=True):
            if size < 0 or 0 <= most < size:
                raise _bad(f"an operand of {size} bytes where there are {most}")
        for matrix, element, rows, columns in self.matrices.values():
            self._check_matrix(matrix, ITEMSIZE[element], rows, columns)

    def _check_kind(self) -> None:
        if (self.element, self.result) not in KINDS or self.activation not in ACTIVATIONS:
            raise _bad(f"{self.element} -> {self.result} {self.activation}")
        if self.result == "f64" and (self.bias is not None or self.activation):
            raise _bad("a bias or an activation of f64")
        if any(m is not None and m.transposed for m in (self.target, self.addend, self.bias)):
            raise _bad("a result that is transposed")
        if not LEAST_SCALE < abs(self.scale) < MOST_SCALE:
            raise _bad(f"scale {self.scale}")

    def _check_matrix(self, matrix: Matrix, itemsize: int, rows: int, columns: int) -> None:
        numbers = matrix.offset, matrix.lead, matrix.step
        if not all(0 <= number <= MOST_ELEMENTS for number in numbers) or matrix.lead < rows:
            raise _bad(f"a matrix of {rows} rows at {numbers}")
        if not 0 <= matrix.operand < len(self.sizes):
            raise _bad(f"operand {matrix.operand} of {len(self.sizes)}")
        end = matrix.offset + self.extent(matrix, rows, columns)
        if end * itemsize > self.sizes[matrix.operand]:
            raise _bad(f"element {end} of {self.sizes[matrix.operand]} bytes")


def _bad(reason: str) -> GraphError:
    return GraphError(f"a product of matrices is damaged: {reason}")


def _listed(value: Any) -> Any:
    if isinstance(value, Matrix):
        return [getattr(value, name) for name in Matrix.__match_args__]
    return list(value) if isinstance(value, tuple) else value


def read(values: Any) -> Gemm:
    """The product of a list, not yet checked. Raises TypeError and ValueError."""
    names, matrices = Gemm.__match_args__, ("left", "right", "target", "addend", "bias")
    made = dict(zip(names, values, strict=True))
    for name, value in made.items():
        if name in matrices:
            made[name] = _matrix(value)
        elif name == "sizes":
            made[name] = tuple(_typed(size, int) for size in value)
        elif name == "scale":
            made[name] = _typed(value, float)
        else:
            made[name] = _typed(value, str if name in ("element", "result", "activation") else int)
    if None in (made["left"], made["right"], made["target"]):
        raise TypeError(values)
    return Gemm(**made)


def _matrix(values: Any) -> Matrix | None:
    if values is None:
        return None
    *numbers, transposed = values
    operand, offset, lead, step = (_typed(number, int) for number in numbers)
    return Matrix(operand, offset, lead, step, _typed(transposed, bool))


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(value)
    return value
