"""The loop IR: what a fused group is before any emitter sees it.

A `Kernel` is a list of statements over flat one-dimensional buffers: loops, register updates and
stores.  Values are scalar expressions (`Expr`), hash-consed by a `Scalars` builder.  Loads are
expressions; a kernel never loads from a buffer it has stored to except through one of mode "work"
or "inout", and statement order says which store it sees.

    kernel k(a0: in f32[4096], a1: out f32[4096]):
        parallel for i0 in 0..4:                   # the outermost loop may be split over lo..hi
            r0 = 0.0
            for i1 in 0..1024:
                r0 = r0 + a0[1024*i0 + i1]         # Update: the emitter may reassociate
            for i1 in 0..1024:
                a1[1024*i0 + i1] = a0[1024*i0 + i1] / r0

Element types: bool, i8..u64, f32, f64 in expressions.  f16 and bf16 exist in memory only: a load
yields them, only `cast` accepts them, and `store` takes a value of the buffer's type.  Complex
numbers never get here: they are pairs of real expressions over a buffer of twice the length.

Expression ops, (operands) -> result:

    const {value}            var {name} -> i64          param {index} -> i64     reg {register}
    size {formula} -> i64    a number that is known when arrays come
    load {buffer} (index)    cast (x) -> dtype          bitcast (x) -> dtype     select (c, x, y)
    add sub mul (x, y) any numeric, integers wrap        div (x, y) floats        fma (x, y, z)
    floats idiv irem (x, y) integers, truncating; division by zero gives 0; never traps
    neg abs (x)              min max (x, y) a NaN operand gives NaN
    sqrt floor ceil trunc rint (x) floats; rint rounds halves to even
    eq ne lt le gt ge (x, y) -> bool, ordered except ne
    and or xor (x, y)  not (x)  bool and integers        shl shr (x, y) integers; shr is arithmetic
    if signed; a count outside 0..bits-1 gives 0 (shr of signed: sign)
    rare (c, x, y)           a select whose x is written where nothing else runs, and skipped where
                             c holds in no lane: x is made of instructions that vectors have. With
                             {always} x may be taken everywhere
    popcount clz (x)         integers
    quads (x, y, z) i32      z + the four u8 of x times the four i8 of y, place by place; wraps
    call {name} (x...)       a function of `vecmath`, same float type in and out

Casts: float to integer truncates and saturates (NaN gives 0); integer to integer wraps; anything
to bool is `!= 0`; f32/f64 to f16/bf16 rounds to nearest even in one step and keeps NaN.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from operator import itemgetter
from typing import Any
from weakref import ref

from graphc.base.record import record
from graphc.ir.sizes import Size
from graphc.ir.types import BOOL, I64, DType

NOBODY = -1  # owns what was made for no single node
NON_FINITE = 2  # status of a kernel whose result is NaN or infinite, see errors.STATUS


def _binary(op: str) -> Callable[[Expr, Expr | float], Expr]:
    return lambda x, y: x.scalars.op(op, x, x.like(y))


def _reflected(op: str) -> Callable[[Expr, float], Expr]:
    return lambda y, x: y.scalars.op(op, y.like(x), y)


def _unary(op: str) -> Callable[[Expr], Expr]:
    return lambda x: x.scalars.op(op, x)


class Expr:
    """A scalar value: `op` over `args`; `data` is what is no operand (value, name, buffer).

    Operators make further expressions, and so do comparisons: what is one value is asked by `is`.
    `//` and `%` are idiv and irem, which truncate.  A number is a literal of the other operand's
    type.
    """

    __slots__ = ("args", "builder", "data", "dtype", "number", "op")

    def __init__(
        self,
        op: str,
        dtype: DType,
        args: tuple[Expr, ...],
        data: Any,
        number: int,
        builder: Builder | None = None,
    ) -> None:
        self.op = op
        self.dtype = dtype
        self.args = args
        self.data = data
        self.number = number
        self.builder = builder  # weak: what it has built outlives it

    __hash__ = object.__hash__
    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("div"), _reflected("div")
    __floordiv__, __rfloordiv__ = _binary("idiv"), _reflected("idiv")
    __mod__, __rmod__ = _binary("irem"), _reflected("irem")
    __and__, __or__, __xor__ = _binary("and"), _binary("or"), _binary("xor")
    __lshift__, __rshift__ = _binary("shl"), _binary("shr")
    __lt__, __le__, __gt__, __ge__ = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge")
    __eq__ = _binary("eq")  # type: ignore[assignment]
    __ne__ = _binary("ne")  # type: ignore[assignment]
    __neg__, __abs__, __invert__ = _unary("neg"), _unary("abs"), _unary("not")

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is known when the kernel runs: use `where`, or `is`")

    @property
    def scalars(self) -> Scalars:
        """The builder that it was made by."""
        builder = self.builder() if self.builder is not None else None
        assert builder is not None, "the builder of an expression is gone"
        return builder

    def like(self, value: Expr | float) -> Expr:
        """A literal of this type; an expression is itself."""
        return value if isinstance(value, Expr) else self.scalars.const(value, self.dtype)

    def cast(self, dtype: DType) -> Expr:
        return self.scalars.cast(self, dtype)

    def narrow(self, dtype: DType) -> Expr:
        return self.scalars.narrow(self, dtype)

    def bitcast(self, dtype: DType) -> Expr:
        return self.scalars.bitcast(self, dtype)

    def __repr__(self) -> str:
        inside = ", ".join(f"%{a.number}" for a in self.args)
        note = "" if self.data is None else f" {{{self.data}}}"
        return f"%{self.number} = {self.op}({inside}){note} : {self.dtype}"


@record(frozen=True, eq=False)
class Buffer:
    """One pointer operand: `size` elements. mode: in, out, inout, work (per-thread scratch).

    What a loop leaves of a `loose` one is never read: its last vector may run over.
    """

    index: int
    dtype: DType
    size: int
    mode: str
    loose: bool = False

    def __repr__(self) -> str:
        return f"a{self.index}"


@record(frozen=True, eq=False)
class Register:
    """A mutable scalar local to the loop iteration that declares it."""

    index: int
    dtype: DType

    def __repr__(self) -> str:
        return f"r{self.index}"


@record(frozen=True, eq=False)
class Declare:
    """A new register with an initial value."""

    register: Register
    value: Expr


@record(frozen=True, eq=False)
class Assign:
    """Set a register (no reassociation allowed)."""

    register: Register
    value: Expr


@record(frozen=True, eq=False)
class Update:
    """register = register `combine` value (add, mul, min, max, and, or, xor), in any order."""

    register: Register
    combine: str
    value: Expr


@record(frozen=True, eq=False)
class Store:
    buffer: Buffer
    index: Expr
    value: Expr


@record(frozen=True, eq=False)
class Prefetch:
    """A hint: `count` elements from `index` on are needed soon. They may lie beyond the buffer."""

    buffer: Buffer
    index: Expr
    count: int


@record(frozen=True, eq=False)
class Routine:
    """Call a routine of LAPACK with the addresses of these elements: it may read and write what
    lies behind them in buffers of mode "work".  No part of a vector loop, nor of a GPU's kernel.
    """

    name: str
    places: tuple[tuple[Buffer, Expr], ...]


@record(frozen=True, eq=False)
class Fail:
    """Return status `code` from the kernel when `condition` holds (bounds, non-finite values)."""

    condition: Expr
    code: int


@record(frozen=True, eq=False)
class If:
    condition: Expr
    body: list[Statement]


@record(frozen=True, eq=False)
class For:
    """for variable in start..stop: parallel (only outermost; over lo..hi), serial, vector, within.

    `vector` promises that iterations do not depend on one another except through `Update`.
    `within` is serial: a loop in a vector loop that all of its iterations run side by side, as
    often as the same literals say.
    """

    variable: Expr
    start: Expr
    stop: Expr
    kind: str
    body: list[Statement]


Statement = Declare | Assign | Update | Store | Prefetch | Routine | Fail | If | For


@record
class Kernel:
    """A complete kernel. `units` is the extent of the parallel loop (1 when there is none)."""

    name: str
    buffers: tuple[Buffer, ...]
    params: int
    body: list[Statement]
    units: int = 1
    # forbid reassociation of updates and contraction to fma; -0 is less than +0 to min and max
    strict: bool = False
    notes: tuple[str, ...] = field(default=())  # comment lines for the readable source
    exact: bool = False  # forbid contraction to fma alone
    sizes: tuple[Size, ...] = ()  # numbers that it is given behind the params
    sizes_at: int | None = None  # of a hook of the core: where they lie in the words of the core
    then: Kernel | None = None  # runs on the same buffers when all units are done


_COMPARE = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_COMMUTATIVE = frozenset(("add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"))


class Builder(ref["Scalars"]):
    """What expressions know their builder by. It outlives it, with whose expressions are whose:
    `owners` holds (number of the first expression, id of the node) for each run of them.
    """

    __slots__ = ("owners",)

    def __init__(self, scalars: Scalars) -> None:
        super().__init__(scalars)  # type: ignore[call-arg]  # ref has __new__ alone
        self.owners: list[tuple[int, int]] = []

    def owner(self, expr: Expr) -> int | None:
        """The id of the node that an expression was made for, if it was made for one."""
        at = bisect_right(self.owners, expr.number, key=itemgetter(0))
        return self.owners[at - 1][1] if at and self.owners[at - 1][1] >= 0 else None


class Scalars:
    """Builds hash-consed expressions and statement lists.

    Arithmetic on literal integers and x+0, x*1, x*0 of *integers* are folded, which keeps index
    arithmetic short; floats are never rewritten.
    """

    def __init__(self, check_finite: bool = False) -> None:
        self.check_finite = check_finite  # results that are NaN or infinite fail the kernel
        self.known: dict[Expr, tuple[int, int]] = {}  # indices that stay between two values
        self.table: dict[Any, Expr] = {}
        self.itself = Builder(self)
        self.body: list[Statement] = []
        self.counts = {"var": 0, "reg": 0}
        self.passed: set[Expr] = set()  # what would have failed before, here or around
        self.sizes: dict[Size, int] = {}  # by number
        self.loaded: dict[int, Buffer] = {}  # what is read, by number

    def make(self, op: str, dtype: DType, args: tuple[Expr, ...] = (), data: Any = None) -> Expr:
        """The expression with this key, made on first use. Loads and registers are made anew."""
        key = (op, dtype.index, tuple(a.number for a in args), data)
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = Expr(op, dtype, args, data, len(self.table), self.itself)
        return found

    def own(self, node: int) -> int:
        """What is made from here on is made for a node; returns for which it was until now."""
        owners = self.itself.owners
        before = owners[-1][1] if owners else NOBODY
        owners.append((len(self.table), node))
        return before

    @contextmanager
    def owned(self, node: int) -> Iterator[None]:
        """What is made meanwhile is made for a node."""
        before = self.own(node)
        try:
            yield
        finally:
            self.own(before)

    # -- leaves

    def const(self, value: float | int | bool, dtype: DType) -> Expr:
        """A literal. Floats are keyed by their hex form, so 0.0, -0.0 and NaN stay apart.

        Raises ValueError for a fraction of an integer type.
        """
        if isinstance(value, Size):
            return self.integer(value).cast(dtype)
        if dtype.kind == "f":
            return self.make("const", dtype, (), "nan" if math.isnan(value) else float(value).hex())
        if value != int(value):
            raise ValueError(f"{value} is no {dtype}")
        return self.make("const", dtype, (), int(value))

    def integer(self, value: int | Expr) -> Expr:
        if isinstance(value, Size):
            self.sizes.setdefault(value, len(self.sizes))
            return self.make("size", I64, (), value)
        return value if isinstance(value, Expr) else self.make("const", I64, (), int(value))

    def param(self, index: int) -> Expr:
        return self.make("param", I64, (), index)

    def load(self, buffer: Buffer, index: Expr | int) -> Expr:
        # A store may lie between two loads: the key of what is written holds the position.
        position = None if buffer.mode == "in" else self.counts["reg"] + len(self.body)
        key = (buffer.index, position)
        self.loaded[buffer.index] = buffer
        return self.make("load", buffer.dtype, (self.integer(index),), key)

    # -- arithmetic

    def op(self, op: str, *args: Expr) -> Expr:
        """Any operator whose result type follows from its operands."""
        dtype = BOOL if op in _COMPARE else args[op in ("select", "rare")].dtype
        if dtype.kind in "iu" and op in ("add", "sub", "mul", "idiv", "irem"):
            folded = self._fold(op, *args)
            if folded is not None:
                return folded
        if op in _COMMUTATIVE and args[0].number > args[1].number:
            args = (args[1], args[0])
        return self.make(op, dtype, args)

    def _fold(self, op: str, x: Expr, y: Expr) -> Expr | None:
        a = x.data if x.op == "const" else None
        b = y.data if y.op == "const" else None
        if a is not None and b is not None and x.dtype is I64:
            if op in ("idiv", "irem"):
                quotient = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
                exact = quotient if op == "idiv" else (a - quotient * b if b else 0)
            else:
                exact = {"add": a + b, "sub": a - b, "mul": a * b}[op]
            return self.integer((exact + 2**63) % 2**64 - 2**63)  # wraps as the machine does
        if op == "add":
            return y if a == 0 else x if b == 0 else None
        if op == "mul":
            if a == 0 or b == 0:
                return x if a == 0 else y
            return y if a == 1 else x if b == 1 else None
        if b == 0 and op == "sub":
            return x
        if b == 1:
            return x if op == "idiv" else self.const(0, x.dtype) if op == "irem" else None
        return None

    def add(self, x: Expr, y: Expr) -> Expr:
        return self.op("add", x, y)

    def sub(self, x: Expr, y: Expr) -> Expr:
        return self.op("sub", x, y)

    def mul(self, x: Expr, y: Expr) -> Expr:
        return self.op("mul", x, y)

    def div(self, x: Expr, y: Expr) -> Expr:
        return self.op("div", x, y)

    def fma(self, x: Expr, y: Expr, z: Expr) -> Expr:
        return self.op("fma", x, y, z)

    def neg(self, x: Expr) -> Expr:
        return self.op("neg", x)

    def select(self, condition: Expr, x: Expr, y: Expr) -> Expr:
        return x if x is y else self.op("select", condition, x, y)

    def compare(self, op: str, x: Expr, y: Expr) -> Expr:
        return self.op(op, x, y)

    def cast(self, x: Expr, dtype: DType) -> Expr:
        return x if x.dtype is dtype else self.make("cast", dtype, (x,))

    def narrow(self, x: Expr, dtype: DType) -> Expr:
        """A cast that may take denormals for zero."""
        return x if x.dtype is dtype else self.make("cast", dtype, (x,), FLUSHED)

    def bitcast(self, x: Expr, dtype: DType) -> Expr:
        return x if x.dtype is dtype else self.make("bitcast", dtype, (x,))

    def call(self, name: str, *args: Expr) -> Expr:
        return self.make("call", args[0].dtype, args, name)

    # -- index arithmetic on i64

    def affine(self, terms: Iterable[tuple[Expr, int]], offset: Expr | int = 0) -> Expr:
        """sum(expr * stride) + offset."""
        total = self.integer(offset)
        for expr, stride in terms:
            total = self.add(self.mul(expr, self.integer(stride)), total)
        return total

    # -- statements

    def register(self, value: Expr) -> Register:
        made = Register(self.counts["reg"], value.dtype)
        self.counts["reg"] += 1
        self.body.append(Declare(made, value))
        return made

    def read(self, register: Register) -> Expr:
        """The register's value at this point (a fresh expression per statement position)."""
        return self.make("reg", register.dtype, (), (register.index, id(self.body), len(self.body)))

    def assign(self, register: Register, value: Expr) -> None:
        self.body.append(Assign(register, value))

    def update(self, register: Register, combine: str, value: Expr) -> None:
        self.body.append(Update(register, combine, value))

    def store(self, buffer: Buffer, index: Expr | int, value: Expr) -> None:
        if self.check_finite and buffer.mode == "out" and value.dtype.is_float:
            wide = self.cast(value, value.dtype.compute)
            zero = self.const(0.0, wide.dtype)
            # x - x is 0 for every finite x and NaN for every other.
            self.fail(self.compare("ne", self.sub(wide, wide), zero), NON_FINITE)
        self.body.append(Store(buffer, self.integer(index), value))

    def prefetch(self, buffer: Buffer, index: Expr, count: int) -> None:
        self.body.append(Prefetch(buffer, index, count))

    def prefetch_behind(self, found: Expr, distance: int, count: int) -> None:
        """Ask for `count` elements so far behind the one that is loaded, if it is: it may be
        computed from several."""
        if found.op == "load":
            buffer = self.loaded[found.data[0]]
            self.prefetch(buffer, found.args[0] + distance, count)

    def routine(self, name: str, places: Iterable[tuple[Buffer, Expr]]) -> None:
        self.body.append(Routine(name, tuple(places)))

    def fail(self, condition: Expr, code: int) -> None:
        if condition not in self.passed:
            self.passed.add(condition)
            self.body.append(Fail(condition, code))

    @contextmanager
    def loop(self, stop: Expr | int, kind: str = "serial", start: Expr | int = 0) -> Iterator[Expr]:
        """Open a loop; the yielded variable is an i64 expression valid inside."""
        variable = self.make("var", I64, (), self.counts["var"])
        self.counts["var"] += 1
        outer, self.body = self.body, []
        passed, self.passed = self.passed, set(self.passed)
        try:
            yield variable
        finally:
            self.passed = passed
            made = For(variable, self.integer(start), self.integer(stop), kind, self.body)
            self.body = outer
            self.body.append(made)

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        outer, self.body = self.body, []
        passed, self.passed = self.passed, set(self.passed)
        try:
            yield
        finally:
            self.passed = passed
            made = If(condition, self.body)
            self.body = outer
            self.body.append(made)


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """The expressions a statement evaluates itself (not those of its body)."""
    match statement:
        case Declare() | Assign() | Update():
            return (statement.value,)
        case Store():
            return (statement.index, statement.value)
        case Prefetch():
            return (statement.index,)
        case Routine():
            return tuple(index for _, index in statement.places)
        case Fail() | If():
            return (statement.condition,)
        case For():
            return (statement.start, statement.stop)


_LEAVES = ("load", "reg", "var", "param", "size", "arg")


FLUSHED = "flushed"  # marks a cast that may take denormals for zero
ALWAYS = "always"  # marks a `rare` expression whose x may be taken everywhere


def rare_operands(expr: Expr) -> tuple[Expr, ...]:
    """What has to be known before the choice of a `rare` expression: all but what it may skip."""
    condition, seldom, usual = expr.args
    return condition, usual, *(e for e in postorder([seldom]) if e.op in _LEAVES)


def walk(body: list[Statement]) -> Iterator[Statement]:
    """Every statement, outer before inner, in order."""
    pending = list(reversed(body))
    while pending:
        statement = pending.pop()
        yield statement
        if isinstance(statement, For | If):
            pending.extend(reversed(statement.body))


def postorder(roots: Iterable[Expr], seen: set[Expr] | None = None) -> Iterator[Expr]:
    """Every expression reachable from the roots once, operands first."""
    seen = set() if seen is None else seen
    for root in roots:
        pending: list[Expr | None] = [root]
        while pending:
            expr = pending.pop()
            if expr is None:  # all operands of the one below it have come
                done = pending.pop()
                assert done is not None
                yield done
            elif expr not in seen:
                seen.add(expr)
                if expr.args:
                    pending += (expr, None, *expr.args[::-1])
                else:
                    yield expr
