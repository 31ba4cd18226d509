"""Vector building blocks of the contraction core: partial access, multiply-add, conversions.

A "part" is the first `count` lanes of a vector: memory behind it is never touched. AVX-512 masks
do that for free; elsewhere a small out-of-line function takes it apart in powers of two.
"""

from collections.abc import Callable

from graphc.codegen.gemm.emit import Body, Operand
from graphc.codegen.gemm.hardware import Hardware
from graphc.codegen.gemm.tile_choice import Kind, may_read_windows
from graphc.codegen.llvm import scalar
from graphc.codegen.llvm.module import widened
from graphc.ir.types import DTYPES, F32
from graphc.loops.nest import Expr

FLIP = -0x7F7F7F80  # four bytes of 128: the bits that `Kind.flips` changes


class Core:
    """The module under construction: its functions, its declarations and the vector vocabulary.

    `turns`: copies of A and B may transpose squares in registers.  `operand`: what is widened is of
    A (0) or of B (1).
    """

    def __init__(
        self, kind: Kind, hardware: Hardware, turns: bool = True, operand: int = 1
    ) -> None:
        self.kind = kind
        self.hardware = hardware
        self.turns = turns and kind.transpose
        self.operand = operand
        self.functions: dict[str, str] = {}
        self.declared: set[str] = {
            f"declare i64 @llvm.s{which}.i64(i64, i64)" for which in ("min", "max")
        }

    def finish(self, body: Body, linkage: str = "internal") -> str:
        """Add a finished function and return its name."""
        attributes = f"noinline nounwind {self.hardware.attributes}"
        self.functions[body.name] = body.text(linkage, attributes)
        return body.name

    def once(self, name: str, build: Callable[[str], Body]) -> str:
        """Build an internal helper on first use."""
        if name not in self.functions:
            self.finish(build(name))
        return name

    def module(self) -> str:
        """The text of the whole module."""
        return "\n".join([*sorted(self.declared), "", *self.functions.values()])

    # -- types ----------------------------------------------------------------------------------

    @property
    def reads_windows(self) -> bool:
        """Whether some plans have rows of A in lanes (`Flag.LANES`)."""
        return may_read_windows(self.kind, self.hardware)

    @property
    def size(self) -> int:
        """Bytes of an element in registers."""
        return self.kind.bytes

    def vector(self, lanes: int, element: str | None = None) -> str:
        """LLVM type of a vector of register elements (or of `element`)."""
        return f"<{lanes} x {element or self.kind.element}>"

    def splat(self, body: Body, lanes: int, value: Operand, element: str | None = None) -> str:
        """A vector with the same value in every lane."""
        kind = self.vector(lanes, element)
        one = element or self.kind.element
        first = body.new(f"insertelement {kind} poison, {one} {value}, i64 0")
        return body.new(
            f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer"
        )

    # -- partial access -------------------------------------------------------------------------

    def mask(self, body: Body, lanes: int, count: Operand) -> str:
        """Lanes below `count` (0 <= count) as a vector of bits."""
        narrow = body.new(f"trunc i64 {count} to i32")
        wide = self.splat(body, lanes, narrow, "i32")
        iota = ", ".join(f"i32 {lane}" for lane in range(lanes))
        return body.new(f"icmp ugt <{lanes} x i32> {wide}, <{iota}>")

    def load_masked(self, body: Body, lanes: int, pointer: str, mask: str, element: str) -> str:
        """Load the lanes of a mask; the others are zero."""
        kind = f"<{lanes} x {element}>"
        name = f"@llvm.masked.load.v{lanes}{short(element)}.p0"
        self.declared.add(f"declare {kind} {name}(ptr, i32, <{lanes} x i1>, {kind})")
        align = width(element)
        return body.new(
            f"call {kind} {name}(ptr {pointer}, i32 {align}, <{lanes} x i1> {mask},"
            f" {kind} zeroinitializer)"
        )

    def store_masked(
        self, body: Body, lanes: int, value: str, pointer: str, mask: str, element: str
    ) -> None:
        """Store the lanes of a mask."""
        kind = f"<{lanes} x {element}>"
        name = f"@llvm.masked.store.v{lanes}{short(element)}.p0"
        self.declared.add(f"declare void {name}({kind}, ptr, i32, <{lanes} x i1>)")
        align = width(element)
        body.do(
            f"call void {name}({kind} {value}, ptr {pointer}, i32 {align}, <{lanes} x i1> {mask})"
        )

    def load_part(self, body: Body, lanes: int, pointer: str, count: Operand, element: str) -> str:
        """Load the first `count` lanes; the others are zero."""
        if self.hardware.masked:
            return self.load_masked(body, lanes, pointer, self.mask(body, lanes, count), element)
        kind = f"<{lanes} x {element}>"
        helper = self.once(
            f"load_{element}_{lanes}", lambda name: load_helper(name, lanes, element)
        )
        return body.new(f"call {kind} @{helper}(ptr {pointer}, i64 {count})")

    def store_part(
        self, body: Body, lanes: int, value: str, pointer: str, count: Operand, element: str
    ) -> None:
        """Store the first `count` lanes."""
        if self.hardware.masked:
            mask = self.mask(body, lanes, count)
            self.store_masked(body, lanes, value, pointer, mask, element)
            return
        helper = self.once(
            f"store_{element}_{lanes}", lambda name: store_helper(name, lanes, element)
        )
        body.do(f"call void @{helper}(<{lanes} x {element}> {value}, ptr {pointer}, i64 {count})")

    def prefetch(self, body: Body, pointer: str, write: bool) -> None:
        """Ask for a cache line: one to write, or one to read later (from the second level)."""
        self.declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        hint = "i32 1, i32 3" if write else "i32 0, i32 2"
        body.do(f"call void @llvm.prefetch.p0(ptr {pointer}, {hint}, i32 1)")

    # -- arithmetic -----------------------------------------------------------------------------

    def multiply_add(self, body: Body, lanes: int, a: str, b: str, c: str) -> str:
        """a * b + c by lanes: fused where possible, integers wrap around, bool is or/and."""
        kind = self.vector(lanes)
        if self.kind.floating:
            fused = "fma" if self.hardware.ordered else "fmuladd"
            name = f"@llvm.{fused}.v{lanes}{short(self.kind.element)}"
            self.declared.add(f"declare {kind} {name}({kind}, {kind}, {kind})")
            return body.new(f"call {kind} {name}({kind} {a}, {kind} {b}, {kind} {c})")
        product = body.new(f"{'and' if self.kind.name == 'bool' else 'mul'} {kind} {a}, {b}")
        return self.plus(body, lanes, product, c)

    def accumulate(self, body: Body, lanes: int, a: str, b: str, c: str) -> str:
        """What tiles do: c + a * b by lanes, or c + a0 * b0 + a1 * b1 + ... of bundles."""
        if not self.kind.bundles:
            return self.multiply_add(body, lanes, a, b, c)
        each = min(lanes, self.kind.lanes)
        if self.kind.together == 4 and self.kind.unsigned[0] == self.kind.flips:
            a, b = b, a  # the instruction takes the unsigned operand first
        parts = []
        for start in range(0, lanes, each):
            which = list(range(start, start + each))
            x, y, z = (self.pick(body, lanes, value, value, which) for value in (a, b, c))
            whole = self.kind.together != 4 or self.hardware.quads
            if whole:
                parts.append(self.one_product(body, each, x, y, z))
            else:
                parts.append(self.two_products(body, x, y, z))
        if len(parts) == 1:
            return parts[0]
        low, high = parts
        return self.pick(body, each, low, high, list(range(2 * each)))

    def one_product(self, body: Body, lanes: int, x: str, y: str, z: str) -> str:
        """z + the products of bundles, by the instruction that multiplies and adds them."""
        bits, kind = 8 * self.size * lanes, self.vector(lanes)
        bundles, name = f"<{bits // 16} x bfloat>", f"@llvm.x86.avx512bf16.dpbf16ps.{bits}"
        if self.kind.together == 4:
            bundles, name = f"<{bits // 8} x i8>", f"@llvm.x86.avx512.vpdpbusd.{bits}"
        self.declared.add(f"declare {kind} {name}({kind}, {bundles}, {bundles})")
        x, y = (body.new(f"bitcast {kind} {value} to {bundles}") for value in (x, y))
        return body.new(f"call {kind} {name}({kind} {z}, {bundles} {x}, {bundles} {y})")

    def two_products(self, body: Body, x: str, y: str, z: str) -> str:
        """z + four u8 of x times four i8 of y: even and odd ones as pairs of i16, exactly.

        y is split by shifts alone, in tiles once for all rows; `pmaddwd` adds two products.
        """
        lanes = self.kind.lanes
        kind, pairs = self.vector(lanes), f"<{2 * lanes} x i16>"
        name = {8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[lanes]
        self.declared.add(f"declare {kind} @llvm.x86.{name}({pairs}, {pairs})")
        x, y = (body.new(f"bitcast {kind} {value} to {pairs}") for value in (x, y))
        low = body.new(f"shl {pairs} {y}, splat (i16 8)")
        parts = (
            (body.new(f"and {pairs} {x}, splat (i16 255)"), low),
            (body.new(f"lshr {pairs} {x}, splat (i16 8)"), y),
        )
        for unsigned, shifted in parts:
            signed = body.new(f"ashr {pairs} {shifted}, splat (i16 8)")
            made = body.new(f"call {kind} @llvm.x86.{name}({pairs} {unsigned}, {pairs} {signed})")
            z = self.plus(body, lanes, z, made)
        return z

    def plus(self, body: Body, lanes: int, a: str, b: str) -> str:
        """a + b lane by lane."""
        name = "fadd" if self.kind.floating else "or" if self.kind.name == "bool" else "add"
        return body.new(f"{name} {self.vector(lanes)} {a}, {b}")

    def totals(self, body: Body, values: list[str]) -> str:
        """The sums of all lanes of several vectors (a power of two of them), as one short vector.

        Rounds that put halves of two vectors side by side and add; then one vector folds onto
        itself.

            a a a a   b b b b   ->   a a b b  +  a a b b   ->   a b a b (4 columns: a b c d ...)
        """
        lanes, count = self.kind.lanes, len(values)
        segment = lanes
        while len(values) > 1:
            half, paired = segment // 2, []
            for left, right in zip(values[::2], values[1::2], strict=True):
                low: list[int] = []
                high: list[int] = []
                for source in (0, lanes):
                    for start in range(0, lanes, segment):
                        low += range(source + start, source + start + half)
                        high += range(source + start + half, source + start + segment)
                parts = (self.pick(body, lanes, left, right, which) for which in (low, high))
                paired.append(self.plus(body, lanes, *parts))
            values, segment = paired, half
        total = values[0]
        while segment > 1:
            segment //= 2
            turned = [lane ^ segment for lane in range(lanes)]
            total = self.plus(body, lanes, total, self.pick(body, lanes, total, total, turned))
        return self.pick(body, lanes, total, total, list(range(0, lanes, lanes // count)))

    def pick(self, body: Body, lanes: int, a: str, b: str, which: list[int]) -> str:
        """Chosen lanes of two vectors side by side."""
        kind = self.vector(lanes)
        order = ", ".join(f"i32 {lane}" for lane in which)
        return body.new(f"shufflevector {kind} {a}, {kind} {b}, <{len(which)} x i32> <{order}>")

    # -- memory format --------------------------------------------------------------------------

    def widen(self, body: Body, lanes: int, value: str) -> str:
        """Convert a vector from its memory format to its register format."""
        if not self.kind.converts:
            return value
        if not self.kind.floating:
            extend = "zext" if self.kind.unsigned[self.operand] else "sext"
            memory, element = (f"<{lanes} x {e}>" for e in (self.kind.memory, self.kind.element))
            return body.new(f"{extend} {memory} {value} to {element}")
        return scalar.widen(self.instructions(body, lanes), value, DTYPES[self.kind.name])

    def narrow(self, body: Body, lanes: int, value: str) -> str:
        """Convert a vector of floats from its register format to its memory format, to nearest
        even."""
        if not self.kind.converts:
            return value
        return scalar.narrow(self.instructions(body, lanes), value, F32, DTYPES[self.kind.name])

    def instructions(self, body: Body, lanes: int) -> "Instructions":
        """What writes the instructions of scalars for so many lanes."""
        return Instructions(body, lanes, self.hardware.half)


class Instructions:
    """Instructions of `llvm.scalar` in a body, as those over vectors."""

    contract, zeros = "", False

    def __init__(self, body: Body, lanes: int, half: bool) -> None:
        self.body, self.lanes, self.half = body, lanes, half

    def emit(self, text: str) -> str:
        return self.body.new(widened(text, self.lanes))

    def range(self, expr: Expr) -> None:
        return None

    def whole_number(self, x: str) -> None:
        return None

    def quads(self, x: str, y: str, z: str) -> None:
        return None

    def brain(self, x: str) -> None:
        return None


def short(element: str) -> str:
    """The suffix by which LLVM names an element type in intrinsic names."""
    return {"float": "f32", "double": "f64"}.get(element, element)


def width(element: str) -> int:
    """Bytes of an LLVM element type."""
    return {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}[element]


def load_helper(name: str, lanes: int, element: str) -> Body:
    """`<lanes x element> name(ptr, count)`: powers of two of elements, the last ones first.

    count 7:    6  ->  6 . .    4 5  ->  4 5 6 .    0 1 2 3  ->  0 1 2 3 4 5 6 .
    """
    kind = f"<{lanes} x {element}>"
    body = Body(name, [("ptr", "source"), ("i64", "count")], kind)
    count, found = body.least("%count", lanes), body.local(kind, "zeroinitializer")
    for few in powers(lanes):
        with body.when(body.test("ne", body.new(f"and i64 {count}, {few}"), 0)):
            start = body.new(f"and i64 {count}, {-2 * few}")
            place = body.at("%source", start, element)
            loaded = body.load(f"<{few} x {element}>", place, width(element))
            first = order([*range(few), *[-1] * (lanes - few)])
            wide = f"<{few} x {element}>"
            loaded = body.new(f"shufflevector {wide} {loaded}, {wide} poison, {first}")
            joined = order([*range(few), *range(lanes, 2 * lanes - few)])
            found.set(body.new(f"shufflevector {kind} {loaded}, {kind} {found.get()}, {joined}"))
    body.do(f"ret {kind} {found.get()}")
    return body


def store_helper(name: str, lanes: int, element: str) -> Body:
    """`name(<lanes x element>, ptr, count)`: powers of two of elements, the first ones first."""
    kind = f"<{lanes} x {element}>"
    body = Body(name, [(kind, "value"), ("ptr", "target"), ("i64", "count")])
    count, left = body.least("%count", lanes), body.local(kind, "%value")
    for few in reversed(powers(lanes)):
        with body.when(body.test("ne", body.new(f"and i64 {count}, {few}"), 0)):
            start = body.new(f"and i64 {count}, {-2 * few}")
            place, value = body.at("%target", start, element), left.get()
            first = order(list(range(few)))
            part = body.new(f"shufflevector {kind} {value}, {kind} poison, {first}")
            body.store(f"<{few} x {element}>", part, place, width(element))
            rest = order([*range(few, lanes), *[-1] * few])
            left.set(body.new(f"shufflevector {kind} {value}, {kind} poison, {rest}"))
    body.do("ret void")
    return body


def powers(lanes: int) -> list[int]:
    """The powers of two up to a number that is one."""
    return [1 << bit for bit in range(lanes.bit_length())]


def order(places: list[int]) -> str:
    """The mask of a shuffle; any element will do where a place is negative."""
    lanes = ", ".join(f"i32 {place if place >= 0 else 'poison'}" for place in places)
    return f"<{len(places)} x i32> <{lanes}>"
