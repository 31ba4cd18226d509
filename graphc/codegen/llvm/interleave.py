"""Elements that lie a stride apart, in whole vectors: rows are loaded as they lie and turned.

A vector loop whose iterations are rows reads element j of so many rows at once.  Memory has them
one row after another, so vectors are loaded along the rows, and shuffles make vectors across them:

    rows  a0 a1 a2 a3 | b0 b1 b2 b3 | c0 ..    ->    a0 b0 c0 d0 | a1 b1 c1 d1 | ..

Stores go the other way.  Of rows that follow each other without a gap vectors hold several; of
others a `Chunk` of each row is loaded by itself.

Rows of a power of two are turned by `exchanges`: each swaps a bit of the number of a vector with
one of the places in it, by instructions that stay within 128 bits or move halves, which take a
cycle where others take six.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from heapq import heappop, heappush
from itertools import product

from graphc.base.record import record

_LARGEST_PRIME = 5  # of rows that are turned in as many steps as they have factors
SHORTEST = 3  # elements side by side: fewer of a row are not worth a load


@record(frozen=True)
class Chunk:
    """`count` elements of each row from the constant `first` on, in a row of `width`."""

    first: int
    count: int
    width: int
    dense: bool  # it is all of a row, and the next one follows


@record(frozen=True)
class Strided:
    """Which elements of each row a loop reads or writes: constants of one index."""

    stride: int
    places: tuple[int, ...]

    @property
    def dense(self) -> bool:
        first, last = self.places[0], self.places[-1]
        return len(self.places) == last - first + 1 == self.stride

    @property
    def worthwhile(self) -> bool:
        """Do enough elements lie side by side?"""
        return self.dense or all(count >= SHORTEST for _, count in runs(self.places))

    def chunks(self, lanes: int) -> tuple[Chunk, ...]:
        """The elements in parts of no more than a vector."""
        width = self.stride
        if self.dense and width <= lanes and max(factors(width)) <= _LARGEST_PRIME:
            return (Chunk(self.places[0], width, width, True),)
        made = []
        for first, count in runs(self.places):
            for start in range(0, count, lanes):
                part = min(lanes, count - start)
                made.append(Chunk(first + start, part, 1 << (part - 1).bit_length(), False))
        return tuple(made)


def runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """Where numbers that follow each other begin, and how many there are."""
    made: list[tuple[int, int]] = []
    for place in places:
        if made and sum(made[-1]) == place:
            made[-1] = made[-1][0], made[-1][1] + 1
        else:
            made.append((place, 1))
    return made


def factors(number: int) -> list[int]:
    """Its prime factors, smallest first; of 1 itself."""
    found = next((p for p in range(2, number) if number % p == 0), number)
    return [found] if found == number else [found, *factors(number // found)]


Bits = tuple[int, ...]  # of the number of an element: which is where
WIDEST = 256  # bits of a vector that is turned by exchanges
SEGMENT = 128  # bits of a register within which shuffles are quick


@record(frozen=True)
class Exchange:
    """Two vectors, whose numbers differ in a bit, become two others: `orders` of their lanes.

        unpack   a0 a1 a2 a3 | b0 b1 b2 b3   ->   a0 b0 a1 b1 | a2 b2 a3 b3
        halves                               ->   a0 a1 b0 b1 | a2 a3 b2 b3

    Of the bits of a place it says where each comes from: a bit of the place, or `lanes.bit_length()
    - 1`, that of the number, which gets the one that is left.
    """

    bits: Bits

    def orders(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Which lanes of both vectors the two results have."""
        count = len(self.bits)
        (left,) = {*range(count + 1)} - {*self.bits}
        made = []
        for number in range(2):
            places = []
            for lane in range(1 << count):
                place = number << left
                for bit, source in enumerate(self.bits):
                    place |= (lane >> bit & 1) << source
                places.append(place)
            made.append(tuple(places))
        return made[0], made[1]


def _moves(lanes: int, bits: int) -> Iterator[Exchange]:
    """The exchanges that are one instruction, for elements of so many bits."""
    count = lanes.bit_length() - 1
    within = min(count, (SEGMENT // bits).bit_length() - 1)
    for first in range(within):  # unpack elements, pairs of them ...
        places = [*range(first), count, *range(first, within - 1), *range(within, count)]
        yield Exchange(tuple(places))
    if bits == 32 and within == 2:  # every other one of both
        yield Exchange((1, count, *range(within, count)))
    for bit in range(within, count):  # segments
        yield Exchange((*range(bit), count, *range(bit + 1, count)))


Steps = tuple[tuple[int, Exchange], ...]
Search = tuple[int, int, Bits, Bits, Steps]


def _ahead(inside: Bits, goal: Bits) -> int:
    """How many exchanges are needed at least: each brings one bit into the places."""
    return len({*goal} - {*inside}) or inside != goal


@cache
def exchanges(lanes: int, width: int, bits: int, along: bool) -> tuple[Steps, tuple[int, ...]]:
    """The fewest exchanges that turn rows of `width` elements, a power of two, to columns, or back
    if `along`: each with the bit of the vectors' numbers that it is for. And where each vector of
    the result then lies.

    Elements count through the rows; bits of their number are in the lane or number of the vector.
    """
    count, slots = lanes.bit_length() - 1, width.bit_length() - 1
    elements = tuple(range(count + slots))  # lowest first: places in a row, then rows
    by_rows = elements[:count], elements[count:]
    by_columns = elements[slots:], elements[:slots]
    start, goal = (by_columns, by_rows) if along else (by_rows, by_columns)
    best = {start[0]: 0}  # which numbers of vectors have the other bits is as good in any order
    waiting: list[Search] = [(_ahead(start[0], goal[0]), 0, *start, ())]
    while waiting:  # A* (Hart, Nilsson, Raphael, 1968)
        _, _, inside, outside, done = heappop(waiting)
        if inside == goal[0]:
            order = [outside.index(bit) for bit in goal[1]]
            spread = (sum((k >> n & 1) << at for n, at in enumerate(order)) for k in range(width))
            return done, tuple(spread)
        for slot, move in product(range(slots), _moves(lanes, bits)):
            both = (*inside, outside[slot])
            after = tuple(both[k] for k in move.bits)
            if len(done) + 1 < best.get(after, lanes):
                (left,) = {*both} - {*after}
                others = (*outside[:slot], left, *outside[slot + 1 :])
                best[after] = len(done) + 1
                cost = len(done) + 1 + _ahead(after, goal[0])
                entry = cost, -len(done), after, others, (*done, (slot, move))
                heappush(waiting, entry)
    raise AssertionError("every bit can be brought to every place")


def _bits(kind: str) -> int:
    """Of a number of a type of LLVM's."""
    return {"float": 32, "double": 64}.get(kind) or int(kind[1:])


class Shuffles:
    """Writes shuffles of vectors of one type."""

    def __init__(self, emit: Callable[[str], str], kind: str, lanes: int) -> None:
        self.emit, self.kind, self.lanes = emit, kind, lanes

    def pick(self, x: str, y: str, order: Iterable[int | None], lanes: int = 0) -> str:
        """Elements of two vectors of so many lanes; None where any will do."""
        wide = f"<{lanes or self.lanes} x {self.kind}>"
        which = [f"i32 {'poison' if k is None else k}" for k in order]
        mask = f"<{len(which)} x i32> <{', '.join(which)}>"
        return self.emit(f"shufflevector {wide} {x}, {wide} {y}, {mask}")

    def joined(self, parts: Sequence[str], width: int) -> str:
        """Short vectors as one, in order."""
        while len(parts) > 1:
            both, pairs = range(2 * width), zip(parts[::2], parts[1::2], strict=True)
            parts = [self.pick(x, y, both, width) for x, y in pairs]
            width *= 2
        return parts[0]

    def part(self, whole: str, start: int, width: int) -> str:
        return self.pick(whole, "poison", range(start, start + width))

    def gathered(self, vectors: Sequence[str], order: Sequence[int]) -> str:
        """Elements of several vectors by their places in all of them."""
        made, lanes = vectors[0], self.lanes
        filled = {lane: place for lane, place in enumerate(order) if place < lanes}
        for number, vector in enumerate(vectors[1:], 1):
            for lane, place in enumerate(order):
                if place // lanes == number:
                    filled[lane] = lanes + place % lanes
            made = self.pick(made, vector, [filled.get(lane) for lane in range(lanes)])
            filled = {lane: lane for lane in filled}
        return made

    def is_even(self, width: int) -> bool:
        """Can rows be turned by exchanges, and does that pay?

        Smaller elements need more of them; of longer vectors one instruction picks any elements.
        """
        is_power_of_two = width & (width - 1) == 0
        return is_power_of_two and 32 <= _bits(self.kind) <= WIDEST // self.lanes

    def exchanged(self, vectors: Sequence[str], along: bool) -> list[str]:
        """Rows turned to columns, or columns to rows."""
        made = list(vectors)
        steps, order = exchanges(self.lanes, len(made), _bits(self.kind), along)
        for slot, move in steps:
            for low in (k for k in range(len(made)) if not k >> slot & 1):
                both = made[low], made[low | 1 << slot]
                made[low], made[low | 1 << slot] = (self.pick(*both, o) for o in move.orders())
        return [made[place] for place in order]

    def across(self, rows: Sequence[str]) -> list[str]:
        """Vectors over rows of as many elements as there are vectors, as one for each column."""
        width = len(rows)
        if width == 1:
            return list(rows)
        if self.is_even(width):
            return self.exchanged(rows, along=False)
        step = factors(width)[0]
        split: list[list[str]] = [[] for _ in range(step)]
        for first in range(0, width, step):
            group = rows[first : first + step]
            for k in range(step):
                order = [k + step * lane for lane in range(self.lanes)]
                split[k].append(self.gathered(group, order))
        columns = [self.across(part) for part in split]
        return [columns[k % step][k // step] for k in range(width)]

    def along(self, columns: Sequence[str]) -> list[str]:
        """The other way: one vector for each column as vectors over rows."""
        width = len(columns)
        if width == 1:
            return list(columns)
        if self.is_even(width):
            return self.exchanged(columns, along=True)
        step = factors(width)[0]
        parts = [self.along(columns[k::step]) for k in range(step)]
        made = []
        for group in zip(*parts, strict=True):
            for k in range(step):
                places = range(k * self.lanes, (k + 1) * self.lanes)
                made.append(
                    self.gathered(group, [p % step * self.lanes + p // step for p in places])
                )
        return made
