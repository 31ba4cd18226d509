"""Elements that lie a stride apart, in whole vectors: rows are loaded as they lie and turned.

A vector loop whose iterations are rows reads element j of so many rows at once.  Memory has them
one row after another, so vectors are loaded along the rows, and shuffles make vectors across them:

    rows  a0 a1 a2 a3 | b0 b1 b2 b3 | c0 ..    ->    a0 b0 c0 d0 | a1 b1 c1 d1 | ..

Stores go the other way.  Of rows that follow each other without a gap vectors hold several; of
others a `Chunk` of each row is loaded by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graphc.record import record

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

    def across(self, rows: Sequence[str]) -> list[str]:
        """Vectors over rows of as many elements as there are vectors, as one for each column."""
        width = len(rows)
        if width == 1:
            return list(rows)
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
