"""A network that sorts a block of keys in registers.

A key's number within the block is lane * vectors + vector, so a lane holds neighbours:

    lane      0  1  2  3        columns are sorted first (Batcher's odd-even merge sort): vectors
    vector 0  0  2  4  6        are compared whole.  Then lanes are merged in pairs, fours ...: the
    vector 1  1  3  5  7        first comparison of a merge mirrors the block, the others halve it.

Interleaving the vectors puts the keys in order in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphc.codegen.llvm.writer import Local, Value, Writer
from graphc.codegen.sorting.lanes import Lanes


def comparators(count: int) -> Iterator[tuple[int, int]]:
    """Batcher's network (Knuth, algorithm 5.2.2 M) for a power of two of keys."""
    p = 1
    while p < count:
        k = p
        while k:
            for j in range(k % p, count - k, 2 * k):
                for i in range(min(k, count - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        yield i + j, i + j + k
            k //= 2
        p *= 2


class Block:
    """The vectors of a block, as they are sorted."""

    def __init__(self, f: Writer, lanes: Lanes, vectors: list[Value]) -> None:
        self.f, self.lanes, self.v = f, lanes, vectors

    def sort(self) -> list[Value]:
        """The vectors of the keys in order.

        The merges are turns of one loop, as code is made for one only: what lanes are compared with
        is read from a table, a row for each merge.
        """
        f, lanes = self.f, self.lanes
        for i, j in comparators(len(self.v)):
            self.compare(i, j)
        held = [f.local(value) for value in self.v]
        merges = lanes.count.bit_length() - 1
        with f.loop(0, merges) as merge:
            self.v = [local.value for local in held]
            self.mirror(*self.row(merge, "mirror"))
            put(held, self.v)
            with f.loop(0, merge) as turn:
                self.v = [local.value for local in held]
                self.halve(*self.row(merge - 1 - turn, "halve"))
                put(held, self.v)
            self.v = [local.value for local in held]
            self.finish()
            put(held, self.v)
        self.v = [local.value for local in held]
        return self.interleaved()

    def row(self, number: Value, name: str) -> tuple[Value, Value]:
        """What each lane is compared with, and which lanes keep the lesser key."""
        f, lanes = self.f, self.lanes
        orders, low = [], []
        for width in (1 << k for k in range(lanes.count.bit_length() - 1)):
            other = 2 * width - 1 if name == "mirror" else width
            orders.append(lanes.order([k ^ other for k in range(lanes.count)]))
            signs = (f"{lanes.element} {-(not k & width)}" for k in range(lanes.count))
            low.append(f"{lanes.kind} <{', '.join(signs)}>")
        order = self.constant(f"{name}_order", lanes.order_kind, orders, number)
        sign = self.constant("low", lanes.kind, low, number)
        return order, f.new(lanes.mask, f"icmp slt {lanes.kind} {sign.text}, zeroinitializer")

    def constant(self, name: str, kind: str, rows: list[str], number: Value) -> Value:
        """A row of a table."""
        f = self.f
        symbol = f"graphc_{name}{self.lanes.bits}"
        text = f"@{symbol} = internal constant [{len(rows)} x {kind}] [{', '.join(rows)}], align 64"
        f.module.heads.setdefault(symbol, text)
        place = f.new("ptr", f"getelementptr {kind}, ptr @{symbol}, i64 {number.text}")
        return f.new(kind, f"load {kind}, ptr {place.text}, align 32")

    def compare(self, i: int, j: int) -> None:
        x, y = self.v[i], self.v[j]
        self.v[i] = self.lanes.least(self.f, x, y)
        self.v[j] = self.lanes.most_of(self.f, x, y)

    def mirror(self, order: Value, low: Value) -> None:
        """Compare each key of two lanes' blocks with the one that lies opposite."""
        f, lanes, last = self.f, self.lanes, len(self.v) - 1
        for i in range((last + 1) // 2):
            x, y = self.v[i], lanes.permuted(f, self.v[last - i], order)
            least, most = lanes.least(f, x, y), lanes.most_of(f, x, y)
            self.v[i] = lanes.chosen(f, low, least, most)
            self.v[last - i] = lanes.permuted(f, lanes.chosen(f, low, most, least), order)

    def halve(self, order: Value, low: Value) -> None:
        """Compare lanes of some distance."""
        f, lanes = self.f, self.lanes
        for i, x in enumerate(self.v):
            y = lanes.permuted(f, x, order)
            self.v[i] = lanes.chosen(f, low, lanes.least(f, x, y), lanes.most_of(f, x, y))

    def finish(self) -> None:
        """Compare vectors: half of them with the other half, and so on."""
        distance = len(self.v) // 2
        while distance:
            for i in range(len(self.v)):
                if not i & distance:
                    self.compare(i, i + distance)
            distance //= 2

    def interleaved(self) -> list[Value]:
        count, made = self.lanes.count, self.v
        low = [k // 2 + (k % 2) * count for k in range(count)]
        high = [lane + count // 2 for lane in low]
        for _ in range(len(made).bit_length() - 1):
            half = len(made) // 2
            pairs = list(zip(made[:half], made[half:], strict=True))
            made = [self.lanes.shuffled(self.f, x, y, way) for x, y in pairs for way in (low, high)]
        return made


def put(held: list[Local], values: list[Value]) -> None:
    for local, value in zip(held, values, strict=True):
        local.set(value)
