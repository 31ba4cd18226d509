"""Runs ops without a compiler: lowerings are evaluated directly with NumPy, traces by reference.

`lowered(op, operands, attrs)` evaluates an op's own lowering (index lambda, contraction dims or
library kernel); `traced(function, *arrays)` traces a function and evaluates its nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from graphc.errors import RunError
from graphc.ir.graph import Builder, Node
from graphc.ir.op import OPS, Compute, Contraction, Library, Op
from graphc.ir.types import I64, AnyType, DType, TupleType, Type, dtype, leaves, tensor
from graphc.loops.nest import Assign, Buffer, Declare, Expr, Fail, If, Scalars, Statement, postorder
from graphc.loops.scalars import Pair
from graphc.ops.record.value import Trace, Value, tracing

# Of sums and what is made of ops, relative and absolute.
RTOL = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-6, "f64": 1e-13, "c64": 4e-6, "c128": 1e-13}


def close(got: Any, want: Any, element: DType, tolerance: float) -> None:
    """Are arrays equal, or as near as numbers of this dtype may be after some operations?"""
    wide = np.complex128 if element.is_complex else np.float64
    if element.kind in "biu":
        np.testing.assert_array_equal(got, want)
    else:
        rtol = RTOL[element.name] * tolerance
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=rtol)


def array_type(array: Any) -> Type:
    return tensor(dtype(array.dtype), array.shape)


def tensors(kind: AnyType) -> list[Type]:
    """The types of the arrays of a value of this type."""
    return [leaf for leaf in leaves(kind) if isinstance(leaf, Type)]


def node_of(op: Op, operands: Any, attrs: Any) -> Any:
    inputs = tuple(SimpleNamespace(type=array_type(np.asarray(a))) for a in operands)
    coerced = op.coerce(attrs)
    kind = op.result_type(tuple(n.type for n in inputs), coerced)
    return SimpleNamespace(op=op, inputs=inputs, attrs=coerced, type=kind)


# ------------------------------------------------------------------------------------ expressions

_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "min": np.minimum, "max": np.maximum, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not, "neg": np.negative,
    "abs": np.absolute, "sqrt": np.sqrt, "floor": np.floor,
}  # fmt: skip


def _truncated(op: str, x: Any, y: Any) -> Any:
    safe = np.where(y == 0, 1, y)
    quotient = np.where(y == 0, 0, np.sign(x) * np.sign(safe) * (abs(x) // abs(safe)))
    return quotient if op == "idiv" else np.where(y == 0, 0, x - quotient * safe)


class Evaluator:
    """Runs the statements of an index lambda for all elements at once.

    Variables and registers are arrays over the elements; inside an `If` a mask says which elements
    are there, and only those must read legal positions.
    """

    def __init__(self, variables: dict[Any, Any], buffers: list[Any], count: int) -> None:
        self.variables = variables
        self.buffers = buffers
        self.count = count
        self.registers: dict[int, Any] = {}

    def run(self, body: list[Statement], mask: Any) -> None:
        for statement in body:
            match statement:
                case Declare():
                    self.registers[statement.register.index] = self.value(statement.value, mask)
                case Assign():
                    index = statement.register.index
                    value = self.value(statement.value, mask)
                    self.registers[index] = np.where(mask, value, self.registers[index])
                case If():
                    self.run(statement.body, mask & self.value(statement.condition, mask))
                case Fail():
                    if np.any(mask & self.value(statement.condition, mask)):
                        raise RunError("index out of range")
                case _:
                    raise AssertionError(statement)

    def value(self, root: Expr, mask: Any) -> Any:
        known: dict[Expr, Any] = {}
        for expr in postorder([root]):
            known[expr] = self.one(expr, [known[a] for a in expr.args], mask)
        return np.broadcast_to(known[root], self.count)

    def one(self, expr: Expr, args: list[Any], mask: Any) -> Any:
        match expr.op:
            case "const":
                value = expr.data if expr.dtype.kind != "f" else float.fromhex(expr.data)
                return np.asarray(value).astype(expr.dtype.numpy)
            case "var":
                return self.variables[expr.data]
            case "reg":
                return self.registers[expr.data[0]].astype(expr.dtype.numpy)
            case "load":
                return self.load(self.buffers[expr.data[0]], args[0], mask)
            case "cast":
                return args[0].astype(expr.dtype.numpy)
            case "select" | "rare":
                return np.where(*args)
            case "idiv" | "irem":
                return _truncated(expr.op, *args)
        return _BINARY[expr.op](*args)

    def load(self, source: Any, place: Any, mask: Any) -> Any:
        place = np.broadcast_to(place, self.count)
        legal = (place >= 0) & (place < source.size)
        assert np.all(legal | ~mask), "stray read"
        if not source.size:
            return np.zeros(self.count, source.dtype)
        return source[np.where(legal, place, 0)]


def _flat(array: Any) -> Any:
    """Row-major elements; complex arrays as interleaved real parts."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(dtype(flat.dtype).real.numpy) if flat.dtype.kind == "c" else flat


def run_compute(node: Any, operands: Any) -> Any:
    """All elements of an index lambda at once. Raises RunError where the lambda fails."""
    b = Scalars()
    buffers = [Buffer(k, n.type.dtype.real, n.type.size, "in") for k, n in enumerate(node.inputs)]

    def read(k: int, index: tuple[Expr, ...]) -> Any:
        dims = node.inputs[k].type.dims
        assert len(index) == len(dims)
        strides = [int(np.prod(dims[a + 1 :], dtype=int)) for a in range(len(dims))]
        place = b.affine(zip(index, strides))
        if not node.inputs[k].type.dtype.is_complex:
            return b.load(buffers[k], place)
        twice = b.mul(place, b.integer(2))
        return Pair(b.load(buffers[k], twice), b.load(buffers[k], b.add(twice, b.integer(1))))

    dims = node.type.dims
    index = tuple(b.make("var", I64, (), k) for k in range(len(dims)))
    result = node.op.lower.element(b, node, read, index)
    parts = [result.re, result.im] if isinstance(result, Pair) else [result]
    for part in parts:
        assert part.dtype is node.type.dtype.real, f"{node.op}: element of type {part.dtype}"
    grid = np.indices(dims).reshape(len(dims), node.type.size)
    run = Evaluator(
        {k: grid[k] for k in range(len(dims))}, [_flat(a) for a in operands], node.type.size
    )
    everything = np.ones(node.type.size, bool)
    run.run(b.body, everything)
    made = [run.value(part, everything) for part in parts]
    whole = made[0] + 1j * made[1] if len(parts) == 2 else made[0]
    return whole.astype(node.type.dtype.numpy).reshape(dims)


def run_contraction(node: Any, operands: Any) -> Any:
    """The sum of products that the loop dimensions describe."""
    dims = node.op.lower.dims(node)
    for role, _, *strides in dims:
        touched = {"batch": (1, 1, 1), "m": (1, 0, 1), "n": (0, 1, 1), "k": (1, 1, 0)}[role]
        assert all(t or not s for t, s in zip(touched, strides)), (role, strides)
    extents = [d[1] for d in dims]
    grid = np.indices(extents).reshape(len(dims), math.prod(extents))
    at_a, at_b, at_c = (
        sum((grid[k] * d[2 + side] for k, d in enumerate(dims)), np.zeros(grid.shape[1], int))
        for side in range(3)
    )
    wide = np.float64 if node.type.dtype.is_float else node.type.dtype.numpy
    made = np.zeros(node.type.size, wide)
    a, c = (np.asarray(x).reshape(-1).astype(wide) for x in operands)
    np.add.at(made, at_c, a[at_a] * c[at_b])
    return made.astype(node.type.dtype.numpy).reshape(node.type.dims)


def storage(array: Any) -> Any:
    """What a library kernel sees of an array: flat, f16 and bf16 as their bits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint16) if dtype(flat.dtype).name in ("f16", "bf16") else flat


def run_library(node: Any, operands: Any, *, split: bool = True) -> Any:
    """The kernel called as plain Python, its units in two uneven parts."""
    lower = node.op.lower
    kinds = tensors(node.type)
    results = [np.full(k.size, 77).astype(k.dtype.numpy) for k in kinds]
    scratch = [np.full(n, 55).astype(d.numpy) for d, n in lower.workspace(node)]
    params = np.array(lower.params(node), np.int64)
    arrays = [storage(np.array(a)) for a in operands] + [storage(r) for r in results] + scratch
    kernel = lower.kernel(node)
    if lower.units is None:
        status = kernel(*arrays, params)
    else:
        units = lower.units(node)
        cut = units // 3 if split else 0
        status = kernel(*arrays, params, 0, cut) or kernel(*arrays, params, cut, units)
    if status:
        raise RunError("kernel failed")
    made = tuple(r.reshape(k.dims) for r, k in zip(results, kinds))
    return made if isinstance(node.type, TupleType) else made[0]


def lowered(op: Op | str, operands: Any, attrs: Any) -> Any:
    """The op evaluated through its lowering, where that is possible without a compiler."""
    record = OPS[op] if isinstance(op, str) else op
    if not isinstance(record.lower, Compute | Contraction | Library):
        return None
    if isinstance(record.lower, Library) and record.lower.kernel is None:
        return None  # loops
    node = node_of(record, operands, attrs)
    match record.lower:
        case Compute():
            return run_compute(node, operands)
        case Contraction():
            return run_contraction(node, operands)
    return run_library(node, operands)


# ------------------------------------------------------------------------------------ traces


def traced(function: Callable[..., Any], *arrays: Any, lower: bool = False) -> Any:
    """The results of a traced function; with `lower`, every node runs through its lowering too."""
    trace = Trace(Builder())
    params = []
    for array in arrays:
        record = OPS["param"]
        node = Node(
            trace.builder.next_id, record, (), record.coerce({"name": "x"}), array_type(array)
        )
        trace.builder.next_id += 1
        params.append(node)
    with tracing(trace):
        made = function(*(trace.wrap(p) for p in params))
    known: dict[Node, Any] = dict(zip(params, arrays))
    for node in trace.builder.nodes:
        operands = [known[n] for n in node.inputs]
        result = node.op.reference(*operands, **node.attrs.values_dict)
        if isinstance(node.type, Type) and node.op.name != "const":
            assert np.shape(result) == node.type.dims, f"{node!r}: reference {np.shape(result)}"
            result = np.asarray(result).astype(node.type.dtype.numpy)
        if lower:
            check = lowered(node.op, operands, node.attrs.values_dict)
            if check is not None:
                same(check, result, 1e-9)
        known[node] = result
    return _fetch(made, known)


def _fetch(made: Any, known: dict[Node, Any]) -> Any:
    if isinstance(made, Value):
        return known[made.node]
    if isinstance(made, tuple | list):
        return type(made)(_fetch(m, known) for m in made)
    return made


def same(made: Any, expected: Any, tolerance: float = 0.0) -> None:
    """Equal shape, dtype and elements (NaN equals NaN)."""
    if isinstance(expected, tuple | list):
        assert len(made) == len(expected)
        for one, other in zip(made, expected):
            same(one, other, tolerance)
        return
    made, expected = np.asarray(made), np.asarray(expected)
    assert made.shape == expected.shape, (made.shape, expected.shape)
    assert made.dtype == expected.dtype, (made.dtype, expected.dtype)
    if made.dtype.kind not in "biu":
        made, expected = (
            a.astype(np.complex128 if a.dtype.kind == "c" else float) for a in (made, expected)
        )
    np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance)


def check_samples(op: Op) -> None:
    """Every good sample: type rule, reference and lowering agree; every bad one is refused."""
    import pytest

    from graphc.errors import GraphError

    assert op.samples is not None, op
    for sample in op.samples():
        operands = [np.asarray(a) for a in sample.operands]
        if not sample.good:
            with pytest.raises(GraphError):
                node_of(op, operands, sample.attrs)
            continue
        node = node_of(op, operands, sample.attrs)
        expected = op.reference(*operands, **node.attrs.values_dict)
        multiple = isinstance(node.type, TupleType)
        kinds = node.type.elements if multiple else (node.type,)
        for kind, array in zip(kinds, expected if multiple else (expected,)):
            assert array_type(np.asarray(array)) is kind, (op, kind, array_type(np.asarray(array)))
        made = lowered(op, operands, sample.attrs)
        if made is not None:
            narrow = kinds[0].dtype.itemsize == 2
            # Compute lowerings of sums round in another order than NumPy; all others are exact.
            loose = 1e-2 if narrow else 1e-5
            same(made, expected, loose)
