"""The record that holds everything about one op, and the table of all ops.

`ops/` fills the table, a family at a time when an op of it is asked for; the frontend, the reader,
the verifier, every pass and every emitter read it. No second list of op names is written by hand.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from graphc.base.late_table import LateTable
from graphc.base.record import record
from graphc.errors import TypeRuleError
from graphc.ir.literal import Literal
from graphc.ir.size_answers import by_example
from graphc.ir.sizes import Size
from graphc.ir.traits import NONE, Traits
from graphc.ir.types import (
    MAX_ELEMENTS,
    MAX_RANK,
    AnyType,
    Dim,
    DType,
    Type,
    dtype,
    interned,
    leaves,
)
from graphc.limits import check_within


class Effect(enum.IntEnum):
    """What a node does besides computing its result; a region op has the strongest of its
    body's.
    """

    PURE = 0
    READ = 1
    WRITE = 2
    COMM = 3
    IO = 4


STATE = (Effect.READ, Effect.WRITE)  # of what touches a variable, which its attributes name


# ------------------------------------------------------------------------------------ attributes

REQUIRED = object()
MOST_SIGNATURES = 4096  # results of a type rule that are remembered for one set of attributes
MAX_TEXT = 4096  # characters of a text attribute
MANY = 2**20  # entries of a list with some for every operand


@record(frozen=True)
class Range:
    """The numbers that an attribute may hold, both ends included; NaN is in no range."""

    low: float
    high: float

    def __contains__(self, value: float | Dim) -> bool:
        """Is the number inside? A symbolic dimension counts as inside: its value is checked once
        the symbol is bound."""
        return isinstance(value, Dim | Size) or self.low <= value <= self.high


AXIS = Range(0, MAX_RANK - 1)
EXTENT = Range(0, MAX_ELEMENTS)  # how many of something
POSITIVE = Range(1, MAX_ELEMENTS)
OFFSET = Range(-MAX_ELEMENTS, MAX_ELEMENTS)  # steps, and places that may lie before the first
FINITE = Range(-sys.float_info.max, sys.float_info.max)
NOT_NEGATIVE = Range(0.0, sys.float_info.max)


@record(frozen=True)
class Attr:
    """One attribute of an op: its kind fixes what Python value is stored and how it prints, and its
    range what may be stored at all.  Type rules rely on both.

    kinds: int float bool str dim dims ints strs dtype type literal.  Every number states the range
    `within` which it (or each entry of a list) lies, every dtype the `choices` it is one of; a str
    has `choices` or up to MAX_TEXT characters, a list up to `most` entries.  `optional` admits
    None.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()
    optional: bool = False
    within: Range | None = None
    most: int = MAX_RANK

    @property
    def is_stated(self) -> bool:
        """Does the schema say which values are legal, where the kind alone does not?"""
        if self.kind in ("bool", "str", "strs", "type", "literal"):
            return True
        return bool(self.choices) if self.kind == "dtype" else self.within is not None

    def trouble(self, value: Any) -> str | None:
        """What is wrong with a value of the right kind, or None."""
        entries = value if isinstance(value, tuple) else (value,)
        if len(entries) > self.most:
            return f"has at most {self.most} entries, got {len(entries)}"
        for entry in entries:
            if isinstance(entry, str) and len(entry) > MAX_TEXT:
                return f"has at most {MAX_TEXT} characters, got {len(entry)}"
            if self.choices and str(entry) not in self.choices:
                return f"must be one of {', '.join(self.choices)}, got {entry!r}"
            if self.within is not None and entry not in self.within:
                low, high = self.within.low, self.within.high
                return f"must lie in {low}..{high}, got {shortened(entry)}"
        return None


def shortened(number: float) -> str:
    """A number as text, however many digits it has: Python prints no integer of over 4,300."""
    if isinstance(number, int) and number.bit_length() > 256:
        return f"{'-' if number < 0 else ''}an integer of {number.bit_length()} bits"
    return str(number)


def _integer(value: Any) -> int:
    if type(value) is int:  # nearly always
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer | Size):
        raise TypeError
    return int(value)


def _dimension(value: Any) -> int | Dim | Size:
    if type(value) is int:
        return value
    return value if isinstance(value, Dim | Size) else _integer(value)


def _exact(kind: type) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return coerce


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


def _float(value: Any) -> float:
    if isinstance(value, bool | str):
        raise TypeError
    return float(value)


_COERCE: dict[str, Callable[[Any], Any]] = {
    "int": _integer,
    "float": _float,
    "bool": _boolean,
    "str": _exact(str),
    "dim": _dimension,
    "dims": lambda v: tuple(map(_dimension, v)),
    "ints": lambda v: tuple(map(_integer, v)),
    "strs": lambda v: tuple(map(_exact(str), v)),
    "dtype": dtype,
    "type": _exact(Type),
    "literal": _exact(Literal),
}


def _key(kind: str, value: Any) -> Any:
    # 1 == True == 1.0 and 0.0 == -0.0 in Python: the schema fixes the kind, floats compare by bits.
    return value.hex() if kind == "float" and value is not None else value


class Attrs(Mapping[str, Any]):
    """The coerced attributes of a node, in schema order. Interned per op: compare with `is`."""

    __slots__ = ("__weakref__", "_values", "key", "table", "types")
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(
        self, values: dict[str, Any], key: tuple[Any, ...], table: WeakValueDictionary[Any, Attrs]
    ) -> None:
        self.table = table  # of the op whose attributes they are
        self._values = values
        self.key = key
        self.types: dict[tuple[AnyType, ...], AnyType] = {}  # results of the type rule

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values_dict(self) -> dict[str, Any]:
        """The plain dict, for `rule(*types, **attrs)`. Must not be changed."""
        return self._values


# ----------------------------------------------------------------------------------- lowering kinds


@record(frozen=True)
class Scalar:
    """Element-wise: `expression(b, *operands, **attrs)` gives one element of the result.

    Operands are broadcast and cast to the dtype that the record says first.
    On complex dtypes the operands are `Pair`s of real expressions.  f16 and bf16 come as f32,
    unless they are taken as `stored`.
    """

    expression: Callable[..., Any]
    stored: bool = False


@record(frozen=True)
class Compute:
    """Index lambda: `element(b, node, read, index)` gives the element of the result at `index`.

    `index` is a tuple of i64 expressions, one per result dimension; `read(k, index)` is the
    element of operand k.  Reading outside an operand's shape is an error of the rule: it must
    clamp or select. `pieces(node)` is for a result made of copies of whole operands: the operand
    and the offset of each.  `position(b, node, read, index)` is for a result that is operand 0 but
    for the elements of operand 1: where in the result the one at `index` lies.  `flat(node)` is for
    a result of which the axes from there on matter by the place in row-major order alone: one loop
    may go over them.
    """

    element: Callable[..., Any]
    pieces: Callable[..., list[tuple[int, tuple[int, ...]]]] | None = None
    position: Callable[..., tuple[Any, ...]] | None = None
    flat: Callable[[Any], int] | None = None
    cheap: bool = True  # worth recomputing per consumer instead of storing

    @property
    def updates(self) -> bool:
        """Is the result operand 0 but for some elements?"""
        return self.position is not None


@record(frozen=True)
class Reduction:
    """Fold operand 0 over attrs["axes"].

    `combine` is a combine of the loop IR, `identity(dtype)` its neutral element (a number),
    `accumulator(dtype)` the type it folds in, `prepare(b, x)` maps an element before folding and
    `finish(b, total, count, dtype)` maps the total to the result.
    """

    combine: str
    identity: Callable[[DType], Any]
    accumulator: Callable[[DType], DType] = lambda d: d.compute
    prepare: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None


@record(frozen=True)
class Contraction:
    """Sum of products of two operands.

    `dims(node)` returns the loop dimensions as (role, extent, stride_a, stride_b, stride_c) tuples
    with role one of batch, m, n, k; strides count elements of row-major contiguous operands.  An
    offset into operand a or b is not possible: pad and slice are nodes of their own.
    """

    dims: Callable[..., list[tuple[str, int, int, int, int]]]


@record(frozen=True)
class Loops:
    """A loop nest written by hand with the builder of the loop IR.

    `nest(b, node, read, write, scratch)` writes the whole kernel: its outermost loop is the
    parallel one, over `units(node)`.  `read(k, position)` is the element of stored operand k at a
    row-major position; `write(index, value)` stores an element of the result together with what is
    computed element-wise from it; `scratch` are per-thread buffers, one for each (dtype, element
    count) of `workspace(node)`, for b.load and b.store.  `cuda` is as that of a Library, or returns
    None for nodes whose loops suit a GPU.  `template` names what the code generator for GPUs has in
    place of the loops.
    """

    nest: Callable[..., None]
    units: Callable[..., int]
    workspace: Callable[..., tuple[tuple[DType, int], ...]] = lambda node: ()
    cuda: Callable[[Any, bool, bool], CudaCode | None] | None = None
    template: str = ""


@record(frozen=True)
class CudaCall:
    """One launch on blocks of threads of the `kernel(buffers..., params..., status, row)` that the
    text of a module defines.

    The buffers are pointers to the operands, then the results, then the scratch of its `CudaCode`;
    the params are int64. A kernel that fails sets status[0] = row << 32 | code if it is 0.
    """

    source: str
    blocks: int
    threads: int
    params: tuple[int, ...] = ()


@record(frozen=True)
class CudaCode:
    """Device code of a node: launches in order, and the (dtype, element count) of their scratch."""

    calls: tuple[CudaCall, ...]
    workspace: tuple[tuple[DType, int], ...] = ()


@record(frozen=True)
class Library:
    """A kernel written by hand, as a function for Numba or as loops, or both.

    `kernel(node)` returns a Python function over flat 1-D arrays (operands, then results, then
    workspace) and a params array of i64; `params(node)` are those integers; `workspace(node)` the
    (dtype, element count) of scratch buffers; `units(node)` the extent the work splits over (the
    function then takes lo and hi after params).  A function with a parameter `cancelled` looks at
    the cancel flag itself wherever it takes long: its units are not cut for it.
    `cuda(node, strict, simulated)` is the device code, in the order of the CPU's sums if strict;
    None: a thread per unit runs the same function.  A CPU runs `loops(node)` instead where there
    are any (always, if there is no `kernel`); their `write` takes the number of the result.
    """

    kernel: Callable[..., Callable[..., Any]] | None
    params: Callable[..., tuple[int, ...]] = lambda node: ()
    workspace: Callable[..., tuple[tuple[DType, int], ...]] = lambda node: ()
    units: Callable[..., int] | None = None
    cuda: Callable[[Any, bool, bool], CudaCode] | None = None
    loops: Callable[[Any], Loops | None] = lambda node: None
    updates: bool = False  # the result is operand 0 but for some elements, and may lie there
    native: str = ""  # the kernel of codegen/native that runs instead where the machine has it


def looks_itself(function: Callable[..., Any]) -> bool:
    """Whether a hand-written kernel is given the cancel flag."""
    code = getattr(function, "py_func", function).__code__
    return "cancelled" in code.co_varnames[: code.co_argcount]


@record(frozen=True)
class Composite:
    """Written with other ops: `expand(*values, **attrs)` returns a Value or a tuple of Values."""

    expand: Callable[..., Any]


@record(frozen=True)
class Alias:
    """The result has the operand's elements in the same row-major order (reshape, barrier): no
    work.
    """


@record(frozen=True)
class Structural:
    """Handled by the compiler itself (param, const, tuple, item, call, fused, control flow,
    comm).
    """


@record(frozen=True)
class Host(Structural):
    """A row of its own that calls Python with copies of the operands, by `reference`.

    With `is_local` the attributes name what exists in this process only: no file may hold it.
    With `is_program` it is a compiled program, whose runs are part of that which calls it.
    """

    is_local: bool = False
    is_program: bool = False


Lowering = (
    Scalar | Compute | Reduction | Contraction | Loops | Library | Composite | Alias | Structural
)

# ------------------------------------------------------------------------------------ the record


@record(frozen=True)
class Sample:
    """Arguments worth testing: operand arrays and attributes; `good` says whether they are legal.

    `tolerance` multiplies the default comparison tolerance; `dtypes` limits the sample to these
    names.
    """

    operands: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    good: bool = True
    tolerance: float = 1.0


@record(frozen=True, eq=False)
class Op:
    """Everything about one op.

    infer(*types, **attrs) -> type       raises TypeRuleError with every shape that matters
    reference(*arrays, **attrs)          NumPy evaluation, any float dtype: the oracle
    lower                                how it becomes code (see the lowering kinds above)
    gradient                             cotangent rule, or None with `differentiable=False`
    batch                                what vmap makes of it, see `ops/record/batching.py`
    cost(node) -> (flops, bytes)         for placement and budgets; None derives it from the types
    samples() -> [Sample]                good and bad arguments
    dtypes                               names of the dtypes of operand 0 it accepts
    in_kernels                           it stands in regions of kernels alone
    is_custom                            a user's own: files call it by permission only
    traits                               what passes ask of it in place of its name
    """

    name: str
    infer: Callable[..., AnyType]
    reference: Callable[..., Any]
    lower: Lowering
    attrs: tuple[Attr, ...] = ()
    dtypes: tuple[str, ...] = ()
    effect: Effect = Effect.PURE
    commutative: bool = False
    differentiable: bool = True
    gradient: Callable[..., Any] | None = None
    cost: Callable[..., tuple[float, float]] | None = None
    samples: Callable[[], list[Sample]] | None = None
    variadic: bool = False
    regions: int = 0
    in_kernels: bool = False
    version: int = 1
    doc: str = ""
    is_custom: bool = False
    traits: Traits = NONE
    batch: Callable[..., Any] | None = None
    _attrs: WeakValueDictionary[Any, Attrs] = field(default_factory=WeakValueDictionary)
    _plain: list[Attrs] = field(default_factory=list)  # those of an op that has none: kept

    def __repr__(self) -> str:
        return self.name

    def coerce(self, given: Mapping[str, Any]) -> Attrs:
        """The interned Attrs for these values, defaults filled in. Raises TypeRuleError."""
        if isinstance(given, Attrs):
            return given
        if not given and self._plain:
            return self._plain[0]
        values: dict[str, Any] = {}
        for attr in self.attrs:
            values[attr.name] = self._coerce_one(attr, given.get(attr.name, attr.default))
        if not given.keys() <= values.keys():
            unknown = sorted(set(given) - set(values))
            raise TypeRuleError(
                f"{self.name} has no attribute {', '.join(unknown)}",
                hint=f"its attributes are: {', '.join(values) or 'none'}",
            )
        key = tuple([_key(a.kind, values[a.name]) for a in self.attrs])
        found = self._attrs.get(key)
        if found is None:
            self._check(values)
            found = interned(self._attrs, key, Attrs(values, key, self._attrs))
            if not values:
                self._plain.append(found)
        return found

    def _check(self, values: Mapping[str, Any]) -> None:
        """Every value lies in the range that the schema states. Raises TypeRuleError."""
        for attr in self.attrs:
            value = values[attr.name]
            trouble = None if value is None else attr.trouble(value)
            if trouble is not None:
                raise TypeRuleError(f"attribute {attr.name} of {self.name} {trouble}")

    def owns(self, attrs: Attrs) -> bool:
        """Were these attributes made by this op's schema?"""
        return attrs.table is self._attrs

    def _coerce_one(self, attr: Attr, value: Any) -> Any:
        if value is REQUIRED:
            raise TypeRuleError(f"{self.name} needs the attribute {attr.name} ({attr.kind})")
        if value is None and attr.optional:
            return None
        try:
            return _COERCE[attr.kind](value)
        except (TypeError, ValueError, OverflowError):
            shown = shortened(value) if isinstance(value, int) else repr(value)[:80]
            raise TypeRuleError(
                f"attribute {attr.name} of {self.name} must be of kind {attr.kind}, got {shown}"
            ) from None

    def estimate(self, node: Any) -> tuple[float, float]:
        """Operations and bytes of a node for the sizes at hand; 0 where the op does not say."""
        if self.cost is None:
            return 0.0, 0.0
        with by_example():
            operations, nbytes = self.cost(node)
            return float(operations), float(nbytes)

    def result_type(self, types: tuple[AnyType, ...], attrs: Attrs) -> AnyType:
        """The type rule, memoised: graphs have few distinct signatures."""
        known = attrs.types
        found = known.get(types)
        if found is None:
            if len(known) >= MOST_SIGNATURES:
                known.clear()
            try:
                found = self.infer(*types, **attrs.values_dict)
                check_scratch(Use(self, tuple(map(Operand, types)), attrs, found))
                known[types] = found
            except TypeError as error:  # wrong number of operands for the rule's signature
                if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                    raise TypeRuleError(
                        f"{self.name} does not take {len(types)} operand(s)"
                    ) from None
                raise
        return found


# --------------------------------------------------------------------------------- scratch memory


@record(frozen=True)
class Operand:
    """An operand of which only the type is known."""

    type: AnyType


@record(frozen=True)
class Use:
    """What lowerings ask of a node, before there is one."""

    op: Op
    inputs: tuple[Operand, ...]
    attrs: Attrs
    type: AnyType


SCRATCH_SHARE = 16  # times the bytes of operands and results that scratch memory may take


def check_scratch(use: Use) -> None:
    """Raise LimitError where attributes ask for scratch memory out of all proportion."""
    types = (*(operand.type for operand in use.inputs), use.type)
    kinds = [leaf for kind in types for leaf in leaves(kind) if isinstance(leaf, Type)]
    lower: Any = use.op.lower
    if not isinstance(lower, Loops | Library) or not all(kind.is_static for kind in kinds):
        return
    loops = lower.loops(use) if isinstance(lower, Library) else None
    needed = sum(d.itemsize * count for d, count in (loops or lower).workspace(use))
    beside = needed - SCRATCH_SHARE * sum(kind.nbytes for kind in kinds)
    what = f"{use.op.name} with {shortened(needed)} bytes of scratch memory"
    check_within("scratch_bytes", beside, what)


@cache
def traits_of(op: Op) -> frozenset[str]:
    """The names of the traits that an op has."""
    return frozenset([name for name in Traits.__match_args__ if getattr(op.traits, name)])


OPS = LateTable[str, Op]()


def register(op: Op) -> Op:
    """Add an op to the table. Raises TypeRuleError if the name is taken."""
    if op.name in OPS:
        raise TypeRuleError(f"an op named {op.name} is already registered")
    OPS[op.name] = op
    return op
