"""Products of sparse matrices by dense ones: three ops, each of which is a gradient of the others.

The matrix has blocks data[k] of p x q elements at block column indices[k] of the block row r for
which indptr[r] <= k < indptr[r + 1] (BSR; CSR has blocks of one element):

    sparse_matmul     out[r] += data[k] @ x[indices[k]]            A @ x
    sparse_adjoint    out[indices[k]] += data[k].T @ y[r]          A.T @ y
    sparse_sampled    out[k] = u[r] @ v[indices[k]].T              (u @ v.T) where A has blocks

Rows of results are independent, except for the adjoint: it adds in the order of the blocks, and
threads share its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from graphc.errors import OutOfRangeError
from graphc.ir.op import EXTENT, Attr, Library, Loops, Op, Sample
from graphc.ir.traits import Traits
from graphc.ir.types import I64, AnyType, Type, definitely_different, tensor
from graphc.loops.nest import Expr
from graphc.ops.index.scatter import CANCELLED, STRIDE
from graphc.ops.record.arguments import Applied, Array
from graphc.ops.record.batching import Lanes
from graphc.ops.record.dims import clamp, tensor_type
from graphc.ops.record.families import define, require, require_dtype, sample_array
from graphc.ops.record.value import Value, emit, functions
from graphc.ops.shape.shape import reshape

DTYPES = ("f32", "f64")
PLACES = ("i32", "i64")
OUT_OF_RANGE = 1  # the status of an index
FEW = 8  # as many sums are kept in registers

# -------------------------------------------------------------------------------------- type rules


def _places(name: str, indices: AnyType, indptr: AnyType) -> tuple[Type, Type]:
    made = tensor_type(name, indices), tensor_type(name, indptr)
    for kind in made:
        require_dtype(name, kind, PLACES)
        require(kind.rank == 1, f"{name}: indices and indptr are vectors, got {kind}")
    ends = made[1].shape[0]
    known = isinstance(ends, int)
    require(not known or ends != 0, f"{name}: indptr has one element more than there are rows")
    return made


def _matrix(name: str, *kinds: AnyType) -> list[Type]:
    made = [tensor_type(name, kind) for kind in kinds]
    for kind in made:
        require_dtype(name, kind, DTYPES)
        require(kind.dtype is made[0].dtype, f"{name}: {kind} and {made[0]} differ in dtype")
        require(kind.rank == 2 or kind is made[0], f"{name} takes matrices, got {kind}")
    return made


def _blocks(name: str, data: Type, indices: Type) -> tuple[int, int]:
    require(data.rank == 3, f"{name}: data[blocks, p, q], got {data}")
    same = not definitely_different(data.shape[0], indices.shape[0])
    require(same, f"{name}: {data} has not as many blocks as there are indices ({indices})")
    p, q = data.shape[1:]
    require(
        isinstance(p, int) and isinstance(q, int) and p > 0 and q > 0,
        f"{name}: blocks need a known size, got {data}",
    )
    return p, q  # type: ignore[return-value]


def _columns(name: str, dense: Any, q: int) -> Any:
    """Block columns of a matrix that has so many rows as this one. Raises TypeRuleError."""
    rows = dense.shape[0]
    require(
        q == 1 or (isinstance(rows, int) and rows % q == 0),
        f"{name}: {dense} has no known number of blocks of {q}",
    )
    return rows if q == 1 else rows // q


def _require_rows(name: str, kind: Type, rows: Any) -> None:
    require(
        not definitely_different(kind.shape[0], rows),
        f"{name}: {kind} should have {rows} rows",
        hint="compare the shape of the sparse matrix with that of the dense one",
    )


def _infer_matmul(data: AnyType, indices: AnyType, indptr: AnyType, x: AnyType) -> Type:
    name = "sparse_matmul"
    (values, dense), places = _matrix(name, data, x), _places(name, indices, indptr)
    p, q = _blocks(name, values, places[0])
    _columns(name, dense, q)
    return tensor(values.dtype, ((places[1].shape[0] - 1) * p, dense.shape[1]))


def _infer_adjoint(
    data: AnyType, indices: AnyType, indptr: AnyType, y: AnyType, *, columns: Any
) -> Type:
    name = "sparse_adjoint"
    (values, dense), places = _matrix(name, data, y), _places(name, indices, indptr)
    p, q = _blocks(name, values, places[0])
    _require_rows(name, dense, (places[1].shape[0] - 1) * p)
    return tensor(values.dtype, (columns * q, dense.shape[1]))


def _infer_sampled(
    u: AnyType, v: AnyType, indices: AnyType, indptr: AnyType, *, block: tuple[int, ...]
) -> Type:
    name = "sparse_sampled"
    (left, right), places = _matrix(name, u, v), _places(name, indices, indptr)
    require(len(block) == 2 and min(block) > 0, f"{name}: block (p, q), got {block}")
    require(left.rank == 2, f"{name} takes matrices, got {left}")
    ends = places[1].shape[0]
    require(not isinstance(ends, int) or ends > 1, f"{name} takes a matrix of at least one row")
    _require_rows(name, left, (places[1].shape[0] - 1) * block[0])
    _columns(name, right, block[1])
    same = not definitely_different(left.shape[1], right.shape[1])
    require(same, f"{name}: {left} and {right} differ in width")
    return tensor(left.dtype, (places[0].shape[0], *block))


# -------------------------------------------------------------------------------------- references


def _rows_of(indices: Array, indptr: Array, columns: int) -> Any:
    """The row of every block. Raises OutOfRangeError where places are wrong."""
    counts = np.diff(indptr)
    sound = indptr[0] == 0 and indptr[-1] == len(indices) and (counts >= 0).all()
    if not sound or ((indices < 0) | (indices >= columns)).any():
        raise OutOfRangeError("indptr rises from 0 to the number of blocks, indices name columns")
    return np.repeat(np.arange(len(counts)), counts)


def _matmul_reference(data: Array, indices: Array, indptr: Array, x: Array) -> Any:
    p, q = data.shape[1:]
    rows = _rows_of(indices, indptr, len(x) // q)
    out = np.zeros((len(indptr) - 1, p, x.shape[1]), x.dtype)
    np.add.at(out, rows, data @ x.reshape(len(x) // q, q, x.shape[1])[indices])
    return out.reshape(len(out) * p, x.shape[1])


def _adjoint_reference(data: Array, indices: Array, indptr: Array, y: Array, columns: int) -> Any:
    p, q = data.shape[1:]
    rows = _rows_of(indices, indptr, columns)
    out = np.zeros((columns, q, y.shape[1]), y.dtype)
    np.add.at(out, indices, data.swapaxes(1, 2) @ y.reshape(len(y) // p, p, y.shape[1])[rows])
    return out.reshape(columns * q, y.shape[1])


def _sampled_reference(
    u: Array, v: Array, indices: Array, indptr: Array, block: tuple[int, int]
) -> Any:
    p, q = block
    width = u.shape[1]
    rows = _rows_of(indices, indptr, len(v) // q)
    left, right = u.reshape(len(u) // p, p, width), v.reshape(len(v) // q, q, width)
    return left[rows] @ right[indices].swapaxes(1, 2)


# ------------------------------------------------------------------------------------------- loops


class Rows:
    """The blocks of one row after another, each index checked before it is used."""

    def __init__(self, places: int, columns: Any, *given: Any) -> None:
        self.b, self.node, self.read, self.write, self.scratch = given
        self.places = places  # the operand `indices`; indptr is the next one
        self.blocks, self.ends = (self.node.inputs[places + k].type.dims[0] for k in (0, 1))
        self.columns = columns

    def span(self, row: Expr) -> tuple[Expr, Expr]:
        """The first block of a row and the first one behind it."""
        b = self.b
        start, stop = (b.register(self.read(self.places + 1, row + k).cast(I64)) for k in (0, 1))
        first, last = b.read(start), b.read(stop)
        b.fail((first < 0) | (first > last) | (last > self.blocks), OUT_OF_RANGE)
        b.fail((row == 0) & (first != 0), OUT_OF_RANGE)
        b.fail((row == b.integer(self.ends) - 2) & (last != self.blocks), OUT_OF_RANGE)
        return first, last

    def column(self, k: Expr) -> Any:
        b = self.b
        place = b.register(self.read(self.places, k).cast(I64))
        b.fail((b.read(place) < 0) | (b.read(place) >= self.columns), OUT_OF_RANGE)
        return b.read(place)


class SparseProduct(Rows):
    """sparse_matmul: a vector is multiplied in registers, more columns in a row of scratch."""

    def __init__(self, b: Any, node: Applied, *given: Any) -> None:
        self.p, self.q = node.inputs[0].type.dims[1:]
        depth, self.width = node.inputs[3].type.dims
        super().__init__(1, depth if self.q == 1 else depth // self.q, b, node, *given)

    def nest(self) -> None:
        b = self.b
        with b.loop(b.integer(self.ends) - 1, "parallel") as row:
            first, last = self.span(row)
            if self.width == 1:
                self.vector(row, first, last)
            elif isinstance(self.width, int) and self.width * self.p <= FEW:
                self.few(row, first, last)
            else:
                self.matrix(row, first, last)

    def element(self, k: Expr, a: Any, c: Any) -> Any:
        return self.read(0, self.b.affine([(k, self.p * self.q), (self.b.integer(a), self.q)], c))

    def vector(self, row: Expr, first: Expr, last: Expr) -> None:
        b = self.b
        zero = b.const(0.0, self.node.type.dtype)
        totals = [b.register(zero) for _ in range(self.p)]
        with b.loop(last, "vector", first) as k:
            # A lane that fails still loads before its status is looked at.
            start = clamp(self.column(k), 0, b.integer(self.columns) - 1) * self.q
            for a, total in enumerate(totals):
                for c in range(self.q):
                    b.update(total, "add", self.element(k, a, c) * self.read(3, start + c))
        for a, total in enumerate(totals):
            self.write((row * self.p + a, b.integer(0)), b.read(total))

    def few(self, row: Expr, first: Expr, last: Expr) -> None:
        """A register for every element of a row of the result."""
        b, width = self.b, self.width
        zero = b.const(0.0, self.node.type.dtype)
        totals = [[b.register(zero) for _ in range(width)] for _ in range(self.p)]
        with b.loop(last, "serial", first) as k:
            start = self.column(k) * self.q
            for a, c in product(range(self.p), range(self.q)):
                value, line = self.element(k, a, c), (start + c) * width
                for j, total in enumerate(totals[a]):
                    b.update(total, "add", value * self.read(3, line + j))
        for a, j in product(range(self.p), range(width)):
            self.write((row * self.p + a, b.integer(j)), b.read(totals[a][j]))

    def matrix(self, row: Expr, first: Expr, last: Expr) -> None:
        b, (sums,), width = self.b, self.scratch, self.width
        with b.loop(b.integer(width) * self.p, "vector") as j:
            b.store(sums, j, b.const(0.0, self.node.type.dtype))
        with b.loop(last, "serial", first) as k:
            start = self.column(k) * self.q
            with b.loop(self.p) as a, b.loop(self.q) as c:
                value = b.register(self.element(k, a, c))
                line, place = a * width, (start + c) * width
                with b.loop(width, "vector") as j:
                    term = b.read(value) * self.read(3, place + j)
                    b.store(sums, line + j, b.load(sums, line + j) + term)
        with b.loop(self.p) as a, b.loop(width, "vector") as j:
            self.write((row * self.p + a, j), b.load(sums, a * width + j))


class Sampled(Rows):
    """sparse_sampled: a sum over the width for every element of every block."""

    def __init__(self, b: Any, node: Applied, *given: Any) -> None:
        self.p, self.q = node.attrs["block"]
        depth, self.width = node.inputs[1].type.dims
        super().__init__(2, depth if self.q == 1 else depth // self.q, b, node, *given)

    def nest(self) -> None:
        b, width = self.b, self.width
        with b.loop(b.integer(self.ends) - 1, "parallel") as row:
            first, last = self.span(row)
            with b.loop(last, "serial", first) as k:
                start = self.column(k) * self.q
                with b.loop(self.p) as a, b.loop(self.q) as c:
                    left, right = (row * self.p + a) * width, (start + c) * width
                    total = b.register(b.const(0.0, self.node.type.dtype))
                    with b.loop(width, "vector") as j:
                        term = self.read(0, left + j) * self.read(1, right + j)
                        b.update(total, "add", term)
                    self.write((k, a, c), b.read(total))


def _row_count(node: Applied) -> int:
    return node.inputs[3 if "block" in node.attrs else 2].type.dims[0] - 1


def _row_of_sums(node: Applied) -> tuple[Any, ...]:
    return ((node.type.dtype, node.inputs[0].type.dims[1] * node.type.dims[1]),)


def _adjoint_kernel(
    data: Array,
    indices: Array,
    indptr: Array,
    y: Array,
    out: Array,
    params: Array,
    lo: int,
    hi: int,
    cancelled: Array | None = None,
) -> int:
    # Columns lo..hi of y and of the result.
    rows, columns, p, q, width = params[0], params[1], params[2], params[3], params[4]
    if indptr[0] != 0 or indptr[rows] != len(indices):
        return 1
    step = STRIDE // max(1, hi - lo) + 1
    for line in range(columns * q):
        if line % step == 0 and cancelled is not None and cancelled[0] != 0:
            return CANCELLED
        for j in range(lo, hi):
            out[np.uint64(line * width + j)] = 0
    for row in range(rows):
        first, last = np.int64(indptr[row]), np.int64(indptr[row + 1])
        if first < 0 or first > last or last > len(indices):
            return 1
        for k in range(first, last):
            if k & (STRIDE - 1) == 0 and cancelled is not None and cancelled[0] != 0:
                return CANCELLED
            column = np.int64(indices[k])
            if column < 0 or column >= columns:
                return 1
            for a in range(p):
                source = np.uint64((row * p + a) * width)
                for c in range(q):
                    value = data[(k * p + a) * q + c]
                    target = np.uint64((column * q + c) * width)
                    for j in range(lo, hi):
                        out[target + np.uint64(j)] += value * y[source + np.uint64(j)]
    return 0


def _adjoint_params(node: Applied) -> tuple[int, ...]:
    _, p, q = node.inputs[0].type.dims
    width = node.type.dims[1]
    return node.inputs[2].type.dims[0] - 1, node.attrs["columns"], p, q, width


# --------------------------------------------------------------------- gradients, lanes, samples


def _matmul_gradient(
    ct: Value, result: Value, data: Value, indices: Value, indptr: Value, x: Value
) -> list[Any]:
    p, q = data.type.dims[1:]
    of_data = emit("sparse_sampled", ct, x, indices, indptr, block=(p, q))
    of_x = emit(
        "sparse_adjoint", data, indices, indptr, ct, columns=_columns("sparse_matmul", x, q)
    )
    return [of_data, None, None, of_x]


def _adjoint_gradient(
    ct: Value, result: Value, data: Value, indices: Value, indptr: Value, y: Value, *, columns: Any
) -> list[Any]:
    of_data = emit("sparse_sampled", y, ct, indices, indptr, block=tuple(data.type.dims[1:]))
    return [of_data, None, None, emit("sparse_matmul", data, indices, indptr, ct)]


def _sampled_gradient(
    ct: Value, result: Value, u: Value, v: Value, indices: Value, indptr: Value, *, block: Any
) -> list[Any]:
    of_u = emit("sparse_matmul", ct, indices, indptr, v)
    of_v = emit(
        "sparse_adjoint", ct, indices, indptr, u, columns=_columns("sparse_sampled", v, block[1])
    )
    return [of_u, of_v, None, None]


def _batch(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
    """One matrix times the dense ones of all lanes side by side; of several, lane by lane."""
    if op is sparse_sampled or any(lanes.mapped[:3]):
        return NotImplemented
    *matrix, x = values
    count, depth, width = x.shape
    flat = reshape(functions.swapaxes(x, 0, 1), (depth, count * width))
    made = emit(op, *matrix, flat, **attrs)
    return functions.swapaxes(reshape(made, (made.shape[0], count, width)), 0, 1)


def _loops(
    kind: type[SparseProduct] | type[Sampled], workspace: Callable[..., Any] | None
) -> Loops:
    def nest(*given: Any) -> None:
        kind(*given).nest()

    return Loops(nest, _row_count, workspace or (lambda node: ()))


PATTERN = (
    np.array([2, 0, 1, 2, 2]),
    np.array([0, 2, 2, 3, 5]),
)  # a row is empty, a block comes twice


def _samples(order: Callable[..., tuple[Any, ...]], **attrs: Any) -> Callable[[], list[Sample]]:
    """`order` puts data, indices, indptr, a matrix of 3 q rows and one of 4 p rows in order."""

    def case(kind: str, block: tuple[int, int], width: int, places: str) -> Sample:
        (p, q), (indices, indptr) = block, PATTERN
        shapes = ((5, p, q), (3 * q, width), (4 * p, width))
        data, x, y = (sample_array(kind, shape, (-4, 4), k) for k, shape in enumerate(shapes))
        operands = order(data, indices.astype(places), indptr.astype(places), x, y)
        named = {"block": block} if "block" in attrs else attrs
        return Sample(operands, named, tolerance=16)

    def make() -> list[Sample]:
        made = [case(k, (1, 1), w, "i4") for k in DTYPES for w in (1, 3, 40)]
        made += [case(k, (2, 3), w, "i8") for k in DTYPES for w in (1, 5)]
        data, x, y = np.zeros((5, 1, 1)), np.zeros((3, 2)), np.zeros((4, 2))
        wrong = (
            order(data, PATTERN[0].astype("f4"), PATTERN[1], x, y),
            order(data, PATTERN[0][:, None], PATTERN[1], x, y),
        )
        return made + [Sample(operands, dict(attrs), False) for operands in wrong]

    return make


TRAITS = Traits(checks=True)

sparse_matmul = define(
    "sparse_matmul",
    batch=_batch,
    infer=_infer_matmul,
    gradient=_matmul_gradient,
    reference=_matmul_reference,
    lower=_loops(SparseProduct, _row_of_sums),
    dtypes=DTYPES,
    samples=_samples(lambda data, indices, indptr, x, y: (data, indices, indptr, x)),
    doc="A sparse matrix in blocks, data[k] at row r for indptr[r] <= k < indptr[r + 1] and column "
    "indices[k], times a dense one.",
    traits=TRAITS,
)

sparse_adjoint = define(
    "sparse_adjoint",
    batch=_batch,
    infer=_infer_adjoint,
    gradient=_adjoint_gradient,
    reference=_adjoint_reference,
    lower=Library(
        lambda node: _adjoint_kernel,
        _adjoint_params,
        units=lambda node: node.type.dims[1],
        native="sparse_adjoint",
    ),
    attrs=(Attr("columns", "dim", within=EXTENT),),
    dtypes=DTYPES,
    samples=_samples(lambda data, indices, indptr, x, y: (data, indices, indptr, y), columns=3),
    doc="The transpose of a sparse matrix in blocks, of so many block columns, times a dense one.",
    traits=TRAITS,
)

sparse_sampled = define(
    "sparse_sampled",
    batch=_batch,
    infer=_infer_sampled,
    gradient=_sampled_gradient,
    reference=_sampled_reference,
    lower=_loops(Sampled, None),
    attrs=(Attr("block", "ints", within=EXTENT, most=2),),
    dtypes=DTYPES,
    samples=_samples(lambda data, indices, indptr, x, y: (y, x, indices, indptr), block=(1, 1)),
    doc="The product u @ v.T where a sparse matrix has blocks.",
    traits=TRAITS,
)
