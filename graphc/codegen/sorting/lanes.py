"""Vectors of unsigned keys, and what sorting does with them: order, shuffle, compress.

To compress is to move the lanes of a mask to the front, in their order.  AVX-512 has an instruction
for it; elsewhere a table tells for every mask which lanes come first:

    keys   5 2 7 1      mask   0 1 0 1      table[mask]   1 3 . .      made   2 1 . .
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.writer import I64, Extern, Operand, Value, Writer, text_of


class Lanes:
    """Vectors of a machine that hold keys of so many bits; `most` of them fit in registers."""

    def __init__(self, target: Target, bits: int) -> None:
        self.bits, self.count = bits, target.lanes(bits // 8)
        self.is_wide = target.vector_bits == 512
        self.most = 16 if self.is_wide else 8
        self.element, self.kind = f"i{bits}", f"<{self.count} x i{bits}>"
        self.mask, self.nbytes = f"<{self.count} x i1>", bits // 8

    # -- numbers in all lanes, and numbers of lanes

    def splat(self, f: Writer, value: Operand) -> Value:
        """A vector that has the value in every lane."""
        if isinstance(value, int):
            return Value(f, self.kind, f"splat ({self.element} {value})")
        one = f.new(
            self.kind, f"insertelement {self.kind} poison, {self.element} {value.text}, i32 0"
        )
        return self.shuffled(f, one, one, [0] * self.count)

    def count_of(self, f: Writer, count: Value) -> Value:
        """A number of keys in all lanes, for `first`."""
        narrow = count.cast("trunc", "i32")
        kind = f"<{self.count} x i32>"
        one = f.new(kind, f"insertelement {kind} poison, i32 {narrow.text}, i32 0")
        zeros = f"<{self.count} x i32> zeroinitializer"
        return f.new(kind, f"shufflevector {kind} {one.text}, {kind} poison, {zeros}")

    def first(self, f: Writer, counts: Value, start: int = 0) -> Value:
        """The mask of the lanes from number `start` on that are below a number of keys."""
        numbers = ", ".join(f"i32 {start + k}" for k in range(self.count))
        return f.new(self.mask, f"icmp slt <{self.count} x i32> <{numbers}>, {counts.text}")

    def less(self, f: Writer, x: Value, y: Value) -> Value:
        return f.new(self.mask, f"icmp ult {self.kind} {x.text}, {y.text}")

    def both(self, f: Writer, x: Value, y: Value) -> Value:
        return f.new(self.mask, f"and {self.mask} {x.text}, {y.text}")

    def opposite(self, f: Writer, mask: Value) -> Value:
        return f.new(self.mask, f"xor {self.mask} {mask.text}, splat (i1 true)")

    def number(self, f: Writer, mask: Value) -> Value:
        """How many lanes a mask has."""
        kind = f"i{self.count}"
        bits = f.new(kind, f"bitcast {self.mask} {mask.text} to {kind}")
        counted = Extern(f"llvm.ctpop.{kind}", kind, kind)(f, bits)
        return counted.cast("zext", I64)

    # -- order

    def least(self, f: Writer, x: Value, y: Value) -> Value:
        return self._pair(f, "umin", x, y)

    def most_of(self, f: Writer, x: Value, y: Value) -> Value:
        return self._pair(f, "umax", x, y)

    def _pair(self, f: Writer, name: str, x: Value, y: Value) -> Value:
        symbol = f"llvm.{name}.v{self.count}i{self.bits}"
        return Extern(symbol, self.kind, self.kind, self.kind)(f, x, y)

    def shuffled(self, f: Writer, x: Value, y: Value, lanes: Sequence[int]) -> Value:
        """Chosen lanes of two vectors side by side."""
        order = ", ".join(f"i32 {lane}" for lane in lanes)
        pair = f"{self.kind} {x.text}, {self.kind} {y.text}"
        return f.new(self.kind, f"shufflevector {pair}, <{len(lanes)} x i32> <{order}>")

    def order(self, lanes: Sequence[int]) -> str:
        """What `permuted` needs of an order of lanes: the text of a constant."""
        words = self.bits // 32 if not self.is_wide else 1
        kind = self.order_kind[self.order_kind.index("x") + 2 : -1]
        order = [lane * words + word for lane in lanes for word in range(words)]
        return f"{self.order_kind} <{', '.join(f'{kind} {word}' for word in order)}>"

    @property
    def order_kind(self) -> str:
        return self.kind if self.is_wide else "<8 x i32>"

    def permuted(self, f: Writer, value: Value, order: Value) -> Value:
        """The lanes in an order that is known only when it runs."""
        kind = self.order_kind
        short = "si" if self.bits == 32 else "di"
        name = f"avx512.permvar.{short}.512" if self.is_wide else "avx2.permd"
        permute = Extern(f"llvm.x86.{name}", kind, kind, kind)
        return self.retyped(f, permute(f, self.retyped(f, value, kind), order), self.kind)

    def retyped(self, f: Writer, value: Value, kind: str) -> Value:
        return value if value.kind == kind else value.cast("bitcast", kind)

    def chosen(self, f: Writer, mask: Value, x: Value, y: Value) -> Value:
        """x in the lanes of the mask, y in the others."""
        text = f"select {self.mask} {mask.text}, {self.kind} {x.text}, {self.kind} {y.text}"
        return f.new(self.kind, text)

    # -- memory

    def at(self, f: Writer, base: Value, index: Operand) -> Value:
        text = f"getelementptr {self.element}, ptr {base.text}, i64 {text_of(index)}"
        return f.new("ptr", text, self.element)

    def load(self, f: Writer, place: Value) -> Value:
        return f.new(self.kind, f"load {self.kind}, ptr {place.text}, align {self.nbytes}")

    def store(self, f: Writer, value: Value, place: Value) -> None:
        f.do(f"store {self.kind} {value.text}, ptr {place.text}, align {self.nbytes}")

    def load_first(self, f: Writer, place: Value, mask: Value, rest: int) -> Value:
        """What lies in the lanes of the mask, and `rest` in the others."""
        name = f"llvm.masked.load.v{self.count}i{self.bits}.p0"
        load = Extern(name, self.kind, f"ptr align {self.nbytes}", self.mask, self.kind)
        return load(f, place, mask, self.splat(f, rest))

    def store_first(self, f: Writer, value: Value, place: Value, mask: Value) -> None:
        name = f"llvm.masked.store.v{self.count}i{self.bits}.p0"
        store = Extern(name, "void", self.kind, f"ptr align {self.nbytes}", self.mask)
        store(f, value, place, mask)

    # -- compress

    def compressed(self, f: Writer, value: Value, mask: Value) -> Value:
        if self.is_wide:
            name = f"llvm.experimental.vector.compress.v{self.count}i{self.bits}"
            return Extern(name, self.kind, self.kind, self.mask, self.kind)(
                f, value, mask, Value(f, self.kind, "poison")
            )
        name = f"graphc_compress{self.count}"
        f.module.heads.setdefault(name, f"@{name} = internal constant {_table(self.count)}")
        number = f.new(f"i{self.count}", f"bitcast {self.mask} {mask.text} to i{self.count}")
        row = f.new(
            "ptr", f"getelementptr <8 x i8>, ptr @{name}, i64 {number.cast('zext', I64).text}"
        )
        order = f.new("<8 x i8>", f"load <8 x i8>, ptr {row.text}, align 8")
        wide = f.new("<8 x i32>", f"zext <8 x i8> {order.text} to <8 x i32>")
        return self.permuted(f, value, wide)


def _table(count: int) -> str:
    """For every mask of so many lanes the words of eight that come first."""
    words, rows = 8 // count, []
    for mask in range(1 << count):
        lanes = sorted(range(count), key=lambda lane: not mask >> lane & 1)
        order = [lane * words + word for lane in lanes for word in range(words)]
        rows.append(f"<8 x i8> <{', '.join(f'i8 {word}' for word in order)}>")
    return f"[{1 << count} x <8 x i8>] [{', '.join(rows)}]"
