"""A writer of LLVM IR text, in which native functions read like the algorithms they are.

    @native(I64)
    def ready_segment(f: Writer, agenda: Struct[AgendaWords]) -> None:
        here = agenda.at("here")
        with f.loop(0, agenda.words) as w:
            found = agenda.open[w] & here.at(w).load(order=SEQ_CST)
            with f.when(found != 0):
                f.give((w << 6) + lowest_bit(f, found))
        f.give(-1)

`f` is the function under construction: `when`, `otherwise`, `loop`, `forever` and `switch` are
blocks, `leave`, `again` and `give` are break, continue and return.  Operators on values write
instructions; numbers are 64 bits wide unless told otherwise.  `struct.field` reads and writes
memory of a named layout, `struct.at("field")` is the field's address, with `load`, `store`, `cas`
and `fetch_add` in any memory order.  A native function calls another by calling it:
`ready_segment(f, agenda)`.

Locals are stack slots.  Without optimisation they cost what values that live across blocks cost;
otherwise LLVM makes values of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeAlias, TypeVar

from graphc.base.memory_layout import Layout

I1, I8, I32, I64, PTR, VOID = "i1", "i8", "i32", "i64", "ptr", "void"
RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = (
    "monotonic",
    "acquire",
    "release",
    "acq_rel",
    "seq_cst",
)
VECTOR = 64  # bytes that the longest vector is aligned to
_BYTES = {I1: 1, I8: 1, I32: 4, I64: 8, PTR: 8}
_KINDS = {"Number": I64, "Int32": I32, "Pointer": PTR, "Flag": I1}

L = TypeVar("L", bound=Layout)


class Value:
    """A value of the function `f`; a pointer also knows what kind of value it points to."""

    __slots__ = ("f", "kind", "of", "text")

    def __init__(self, f: Writer, kind: str, text: str, of: str = I64) -> None:
        self.f, self.kind, self.text, self.of = f, kind, text, of

    def __bool__(self) -> bool:
        raise TypeError("what native code computes is known when it runs: use f.when")

    # -- arithmetic: of pointers in bytes, of numbers that are divided or shifted without sign

    def _binary(self, name: str, other: Operand) -> Value:
        return self.f.new(self.kind, f"{name} {self.kind} {self.text}, {text_of(other)}")

    def __add__(self, other: Operand) -> Value:
        if self.kind == PTR:
            return self.f.new(PTR, f"getelementptr i8, ptr {self.text}, i64 {text_of(other)}")
        return self._binary("add", other)

    def __radd__(self, other: int) -> Value:
        return self + other

    def __sub__(self, other: Operand) -> Value:
        return self._binary("sub", other)

    def __mul__(self, other: Operand) -> Value:
        return self._binary("mul", other)

    def __floordiv__(self, other: Operand) -> Value:
        return self._binary("udiv", other)

    def __mod__(self, other: Operand) -> Value:
        return self._binary("urem", other)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary("shl", other)

    def __rshift__(self, other: Operand) -> Value:
        return self._binary("lshr", other)

    def __and__(self, other: Operand) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Operand) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary("xor", other)

    def __invert__(self) -> Value:
        return self._binary("xor", -1)

    def least(self, other: Operand) -> Value:
        """The smaller of two numbers with sign."""
        return (self < other).choose(self, other)

    def most(self, other: Operand) -> Value:
        """The larger of two numbers with sign."""
        return (self > other).choose(self, other)

    # -- comparisons: with sign, except `below`

    def _compare(self, relation: str, other: Operand) -> Value:
        return self.f.new(I1, f"icmp {relation} {self.kind} {self.text}, {text_of(other)}")

    def __eq__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compare("ne", other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Operand) -> Value:
        return self._compare("slt", other)

    def __le__(self, other: Operand) -> Value:
        return self._compare("sle", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compare("sgt", other)

    def __ge__(self, other: Operand) -> Value:
        return self._compare("sge", other)

    def below(self, other: Operand) -> Value:
        """Whether it is the smaller one of two numbers or addresses without sign."""
        return self._compare("ult", other)

    @property
    def is_null(self) -> Value:
        return self.f.new(I1, f"icmp eq ptr {self.text}, null")

    @property
    def is_some(self) -> Value:
        return self.f.new(I1, f"icmp ne ptr {self.text}, null")

    def choose(self, yes: Operand, no: Operand) -> Value:
        """`yes` where this condition holds, else `no`."""
        kind = next((v.kind for v in (yes, no) if isinstance(v, Value)), I64)
        first, second = text_of(yes), text_of(no)
        return self.f.new(kind, f"select i1 {self.text}, {kind} {first}, {kind} {second}")

    # -- conversions

    def cast(self, name: str, kind: str) -> Value:
        """What an instruction (`zext`, `sext`, `trunc`, `ptrtoint`, `inttoptr`) makes of it."""
        return self.f.new(kind, f"{name} {self.kind} {self.text} to {kind}")

    def to(self, layout: type[L]) -> Struct[L]:
        """This pointer, to memory of a layout."""
        return Struct(self.f, self.text, layout)

    # -- memory: of a pointer

    def at(self, index: Any) -> Value:
        """The address of the word of this number."""
        return self.f.new(PTR, f"getelementptr i64, ptr {self.text}, i64 {text_of(index)}")

    def __getitem__(self, index: Any) -> Value:
        return self.at(index).load()

    def __setitem__(self, index: Any, value: Operand) -> None:
        self.at(index).store(value)

    def pointer(self, index: Operand) -> Value:
        """The word of this number, which is an address."""
        return self.at(index).load(PTR)

    def load(self, kind: str = "", order: str = "") -> Value:
        kind = kind or self.of
        atomic = f" {order}, align {_BYTES[kind]}" if order else ""
        head = "load atomic" if order else "load"
        return self.f.new(kind, f"{head} {kind}, ptr {self.text}{atomic}")

    def store(self, value: Operand, order: str = "") -> None:
        kind = value.kind if isinstance(value, Value) else self.of
        atomic = f" {order}, align {_BYTES[kind]}" if order else ""
        head = "store atomic" if order else "store"
        self.f.do(f"{head} {kind} {text_of(value)}, ptr {self.text}{atomic}")

    def cas(self, old: Operand, new: Operand, order: str, failure: str = RELAXED) -> Value:
        """Compare and swap: whether `old` was there, and `new` is now."""
        operands = f"{self.of} {text_of(old)}, {self.of} {text_of(new)}"
        pair = self.f.new("", f"cmpxchg ptr {self.text}, {operands} {order} {failure}")
        return self.f.new(I1, f"extractvalue {{ {self.of}, i1 }} {pair.text}, 1")

    def _fetch(self, name: str, value: Operand, order: str) -> Value:
        operand = f"{self.of} {text_of(value)}"
        return self.f.new(self.of, f"atomicrmw {name} ptr {self.text}, {operand} {order}")

    def fetch_add(self, value: Operand, order: str) -> Value:
        """Add, and give what was there before."""
        return self._fetch("add", value, order)

    def fetch_sub(self, value: Operand, order: str) -> Value:
        return self._fetch("sub", value, order)

    def fetch_or(self, value: Operand, order: str) -> Value:
        return self._fetch("or", value, order)

    def exchange(self, value: Operand, order: str) -> Value:
        return self._fetch("xchg", value, order)


Operand: TypeAlias = Value | int
Number: TypeAlias = Value  # of 64 bits
Int32: TypeAlias = Value
Pointer: TypeAlias = Value
Flag: TypeAlias = Value


def text_of(operand: Operand) -> str | int:
    return operand.text if isinstance(operand, Value) else operand


class Local(Value):
    """A variable that may be set; each use reads it."""

    __slots__ = ("place",)

    def __init__(self, f: Writer, kind: str, of: str = I64) -> None:
        self.f, self.kind, self.of = f, kind, of
        self.place = f.slot(kind, align=VECTOR if kind.startswith("<") else 8)

    @property
    def text(self) -> str:  # type: ignore[override]
        return self.value.text

    @property
    def value(self) -> Value:
        """Its value now, which stays what it is."""
        return self.f.new(self.kind, f"load {self.kind}, ptr {self.place.text}")

    def set(self, value: Operand) -> None:
        self.f.do(f"store {self.kind} {text_of(value)}, ptr {self.place.text}")

    def __iadd__(self, other: Operand) -> Local:
        self.set(self + other)
        return self


class Struct(Value, Generic[L]):
    """A pointer to memory of a named layout, of which there may be an array."""

    __slots__ = ("layout",)
    layout: type[L]

    def __init__(self, f: Writer, text: str, layout: type[L]) -> None:
        put = object.__setattr__
        put(self, "f", f)
        put(self, "kind", PTR)
        put(self, "of", I64)
        put(self, "text", text)
        put(self, "layout", layout)

    def at(self, index: Any) -> Value:
        """The address of a field, by its name."""
        offset, kind = self.layout.fields[index]
        if not offset:
            return Value(self.f, PTR, self.text, kind)
        return self.f.new(PTR, f"getelementptr i8, ptr {self.text}, i64 {offset}", kind)

    def __getattr__(self, name: str) -> Value:
        if name not in self.layout.fields:
            raise AttributeError(f"{self.layout.__name__} has no field {name!r}")
        return self.at(name).load()

    def __setattr__(self, name: str, value: Operand) -> None:
        self.at(name).store(value)

    def __getitem__(self, index: Any) -> Struct[L]:
        """The neighbour so many places on."""
        element = f"[{self.layout.nbytes} x i8]"
        found = self.f.new(PTR, f"getelementptr {element}, ptr {self.text}, i64 {text_of(index)}")
        return found.to(self.layout)


class Writer:
    """One native function under construction."""

    def __init__(self, module: Module, result: str) -> None:
        self.module = module
        self.result = result
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.loops: list[tuple[str, str]] = []  # where `again` and `leave` go
        self.count = 0
        self.block = "entry"
        self.is_open = True  # something may follow in this block

    def new(self, kind: str, text: str, of: str = I64) -> Value:
        """Write an instruction that has a value."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return Value(self, kind, name, of)

    def do(self, text: str) -> None:
        """Write an instruction without a value."""
        self.lines.append(f"  {text}")

    def call(self, result: str, callee: str, kinds: Iterable[str], values: Iterable[Any]) -> Value:
        operands = [f"{k} {text_of(v)}" for k, v in zip(kinds, values, strict=True)]
        text = f"call {result} {callee}({', '.join(operands)})"
        if result != VOID:
            return self.new(result, text)
        self.do(text)
        return Value(self, VOID, "")

    def invoke(self, result: str, function: Value, *values: Operand | None) -> Value:
        """Call a function by its address; None is a null pointer."""
        kinds = [PTR if v is None else v.kind if isinstance(v, Value) else I64 for v in values]
        given = [Value(self, PTR, "null") if v is None else v for v in values]
        return self.call(result, str(text_of(function)), kinds, given)

    # -- memory of the function

    def slot(self, kind: str, count: int = 1, align: int = 8) -> Value:
        """Room on the stack for so many values, for as long as the function runs."""
        self.count += 1
        what = kind if count == 1 else f"[{count} x {kind}]"
        self.slots.append(f"  %v{self.count} = alloca {what}, align {align}")
        return Value(self, PTR, f"%v{self.count}", kind)

    def room(self, words: Operand) -> Value:
        """Room on the stack for a number of words that is known only here; not in a loop."""
        return self.new(PTR, f"alloca i64, i64 {text_of(words)}, align 16")

    def local(self, value: Operand, kind: str = "") -> Local:
        """A variable with a first value."""
        made = Local(self, kind or (value.kind if isinstance(value, Value) else I64))
        made.set(value)
        return made

    def null(self) -> Value:
        return Value(self, PTR, "null")

    def half(self, number: int) -> Value:
        """A number of 32 bits."""
        return Value(self, I32, str(number))

    # -- control

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block, self.is_open = name, True

    def go(self, label: str) -> None:
        """End the block, if it has not ended yet."""
        if self.is_open:
            self.lines.append(f"  br label %{label}")
            self.is_open = False

    def tag(self) -> int:
        self.count += 1
        return self.count

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """`if condition:`."""
        tag = self.tag()
        self.do(f"br i1 {condition.text}, label %then{tag}, label %else{tag}")
        self.label(f"then{tag}")
        yield
        self.go(f"else{tag}")
        self.label(f"else{tag}")

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """`else:`, right behind a `when`."""
        label = self.lines.pop()
        tag = int(label.removeprefix("else").removesuffix(":"))
        if self.lines[-1] == f"  br label %else{tag}":
            self.lines[-1] = f"  br label %done{tag}"
        self.label(f"else{tag}")
        yield
        self.go(f"done{tag}")
        self.label(f"done{tag}")

    @contextmanager
    def forever(self) -> Iterator[None]:
        """`while True:`."""
        tag = self.tag()
        with self._loop(f"head{tag}", f"exit{tag}"):
            self.go(f"head{tag}")
            self.label(f"head{tag}")
            yield
            self.go(f"head{tag}")

    @contextmanager
    def loop(self, start: Operand, stop: Operand) -> Iterator[Value]:
        """`for number in range(start, stop):`."""
        tag, first = self.tag(), f"[ {text_of(start)}, %{self.block} ]"
        with self._loop(f"next{tag}", f"exit{tag}"):
            self.go(f"head{tag}")
            self.label(f"head{tag}")
            now = self.new(I64, f"phi i64 {first}, [ %after{tag}, %next{tag} ]")
            self.do(f"br i1 {(now < stop).text}, label %body{tag}, label %exit{tag}")
            self.label(f"body{tag}")
            yield now
            self.go(f"next{tag}")
            self.label(f"next{tag}")
            self.do(f"%after{tag} = add i64 {now.text}, 1")
            self.go(f"head{tag}")

    @contextmanager
    def _loop(self, again: str, leave: str) -> Iterator[None]:
        self.loops.append((again, leave))
        yield
        self.loops.pop()
        self.label(leave)

    def again(self) -> None:
        """`continue`."""
        self.go(self.loops[-1][0])

    def leave(self) -> None:
        """`break`."""
        self.go(self.loops[-1][1])

    @contextmanager
    def switch(self, value: Value) -> Iterator[Callable[..., Any]]:
        """`match value:` with `with case(1, 2):`; a value without a case goes on behind it."""
        tag, cases = self.tag(), list[str]()
        place = len(self.lines)
        self.do("")

        @contextmanager
        def case(*numbers: int) -> Iterator[None]:
            label = f"case{tag}.{len(cases)}"
            cases.extend(f"{value.kind} {number}, label %{label}" for number in numbers)
            self.label(label)
            yield
            self.go(f"done{tag}")

        yield case
        self.lines[place] = (
            f"  switch {value.kind} {value.text}, label %done{tag} [ {' '.join(cases)} ]"
        )
        self.label(f"done{tag}")

    def give(self, value: Operand | None = None) -> None:
        """`return value`."""
        if value is None:
            self.do("ret void")
        else:
            kind = value.kind if isinstance(value, Value) else self.result
            self.do(f"ret {kind} {text_of(value)}")
        self.is_open = False


class Native:
    """A native function: how its body is written, once for each module that calls it."""

    def __init__(
        self, body: Callable[..., None], result: str, is_public: bool, symbol: str
    ) -> None:
        self.body, self.result, self.is_public = body, result, is_public
        self.symbol = symbol or f"graphc_{body.__name__}"
        self.__doc__ = body.__doc__
        self.parameters: dict[str, str | type[Layout]] = {
            name: _parameter(annotation, body.__globals__)
            for name, annotation in body.__annotations__.items()
            if name not in ("f", "return")
        }
        self.kinds = [k if isinstance(k, str) else PTR for k in self.parameters.values()]

    def __call__(self, f: Writer, *values: Operand) -> Value:
        f.module.need(self)
        return f.call(self.result, f"@{self.symbol}", self.kinds, values)

    def address(self, f: Writer) -> Value:
        f.module.need(self)
        return Value(f, PTR, f"@{self.symbol}")

    def text(self, module: Module) -> str:
        """The definition."""
        f = Writer(module, self.result)
        given = [
            Value(f, kind, f"%{name}") if isinstance(kind, str) else Struct(f, f"%{name}", kind)
            for name, kind in self.parameters.items()
        ]
        self.body(f, *given)
        if f.is_open:
            f.do("ret void" if self.result == VOID else "unreachable")
        linkage = "" if self.is_public else "internal "
        signature = ", ".join(f"{k} %{n}" for k, n in zip(self.kinds, self.parameters, strict=True))
        head = f"define {linkage}{self.result} @{self.symbol}({signature}) {{"
        return "\n".join([head, "entry:", *f.slots, *f.lines, "}", ""])


def _parameter(annotation: str, names: dict[str, Any]) -> str | type[Layout]:
    """`Number`, `Int32`, `Pointer` and `Flag` are kinds, `Struct[Name]` is a layout."""
    if annotation in _KINDS:
        return _KINDS[annotation]
    layout: type[Layout] = names[annotation.removeprefix("Struct[").removesuffix("]")]
    return layout


def native(
    result: str = VOID, *, is_public: bool = False, symbol: str = ""
) -> Callable[..., Native]:
    """Make a native function of one that writes its body; the annotations are its signature.

    A public one can be called from other objects.
    """
    return lambda body: Native(body, result, is_public, symbol)


class Extern:
    """A function of the system, of Python or of LLVM."""

    def __init__(self, symbol: str, result: str, *kinds: str) -> None:
        self.symbol, self.result, self.kinds = symbol, result, kinds

    def __call__(self, f: Writer, *values: Operand) -> Value:
        f.module.declare(self)
        return f.call(self.result, f"@{self.symbol}", self.kinds, values)


_copy = Extern("llvm.memcpy.p0.p0.i64", VOID, PTR, PTR, I64, I1)
fill = Extern("llvm.memset.p0.i64", VOID, PTR, I8, I64, I1)


def copy_bytes(f: Writer, target: Value, source: Value, count: Operand) -> None:
    """Copy bytes between places that do not overlap."""
    _copy(f, target, source, count, 0)


def clear_bytes(f: Writer, target: Value, count: Operand) -> None:
    """Set bytes to zero."""
    fill(f, target, 0, count, 0)


class Global:
    """Memory of the process: a number, or so many structs (all zero)."""

    def __init__(
        self, name: str, of: str | type[Layout], first: int = 0, *, count: int = 1, align: int = 8
    ) -> None:
        self.symbol = f"graphc_{name}"
        self.of = of
        if isinstance(of, str):
            kind = f"{of} {first}"
        else:
            kind = f"[{count * of.nbytes} x i8] zeroinitializer"
        self.text = f"@{self.symbol} = internal global {kind}, align {align}"

    def __call__(self, f: Writer) -> Any:
        """Its address in a function: a pointer to a number, or a struct."""
        f.module.define(self)
        text = f"@{self.symbol}"
        return (
            Value(f, PTR, text, self.of) if isinstance(self.of, str) else Struct(f, text, self.of)
        )


class Module:
    """What some native functions, and all that they call, are made of."""

    def __init__(self, triple: str) -> None:
        self.triple = triple
        self.has_threads = "windows" not in triple  # POSIX ones
        self.is_linux = "linux" in triple
        self.is_darwin = "darwin" in triple
        self.heads: dict[str, str] = {}  # by symbol
        self.functions: dict[str, Native] = {}

    def need(self, function: Native) -> None:
        self.functions.setdefault(function.symbol, function)

    def declare(self, function: Extern) -> None:
        if function.symbol not in self.heads:
            signature = f"{function.result} @{function.symbol}({', '.join(function.kinds)})"
            self.heads[function.symbol] = f"declare {signature}"

    def define(self, memory: Global) -> None:
        self.heads.setdefault(memory.symbol, memory.text)

    def text(self, roots: Sequence[Native]) -> str:
        """The IR of the roots and of everything that they need."""
        for root in roots:
            self.need(root)
        written: list[str] = []
        while len(written) < len(self.functions):
            rest = list(self.functions.values())[len(written) :]
            written.extend([function.text(self) for function in rest])
        return "\n".join([*self.heads.values(), "", *written])
