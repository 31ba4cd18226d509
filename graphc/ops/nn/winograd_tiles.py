"""Winograd's matrices, and how images are cut into strips of tiles that fit the first cache level.

A strip is a few rows of tiles of one image, or a few whole small images.  Inside a strip tiles
count along one axis, so that loops over it are long whatever the image's width.  Where x is read,
neighbouring tiles overlap; there each row has a dead tile more (or two, if windows are wide), and
each image as many dead rows, which keeps every address a constant away from that of the tile:

      tile     0   1   2  dead | 0   1   2  dead
    x column  0123456789ab....  0123456789ab....        m = 4: tile 1 reads 4..9
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from graphc.base.record import record
from graphc.ir.sizes import Size, either, greatest, is_open, least
from graphc.loops.nest import Expr, Scalars
from graphc.loops.scalars import minimum
from graphc.ops.tuning import tuned

Matrix = tuple[tuple[Fraction, ...], ...]
# Points that many tiles apart share two sets of the first cache level: rows get some spare tiles.
SHARED, SPARE = 512, 16


def _matrix(rows: str) -> Matrix:
    return tuple(tuple(map(Fraction, row.split())) for row in rows.split(","))


# Interpolation at 0, 1, -1 and infinity for tiles of 4 x 4 elements of x, at 0, 3/4, -3/4, 3/2,
# -3/2 and infinity for 6 x 6: a quarter of the error of the usual 0, 1, -1, 2, -2, and B and A are
# exact in f32.  B depends on the size of the tile alone, G and A on (results, window).
INPUT: dict[int, Matrix] = {
    4: _matrix("1 0 -1 0, 0 1 1 0, 0 -1 1 0, 0 1 0 -1"),
    6: _matrix(
        "81/64 0 -45/16 0 1 0, 0 -27/16 -9/4 3/4 1 0, 0 27/16 -9/4 -3/4 1 0,"
        "0 -27/32 -9/16 3/2 1 0, 0 27/32 -9/16 -3/2 1 0, 0 81/64 0 -45/16 0 1"
    ),
}
WEIGHT: dict[tuple[int, int], Matrix] = {
    (2, 3): _matrix("1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2, 0 0 1"),
    (4, 3): _matrix(
        "64/81 0 0, -128/243 -32/81 -8/27, -128/243 32/81 -8/27,"
        "32/243 16/81 8/27, 32/243 -16/81 8/27, 0 0 1"
    ),
    (2, 5): _matrix(
        "64/81 0 0 0 0, -128/243 -32/81 -8/27 -2/9 -1/6, -128/243 32/81 -8/27 2/9 -1/6,"
        "32/243 16/81 8/27 4/9 2/3, 32/243 -16/81 8/27 -4/9 2/3, 0 0 0 0 1"
    ),
}
OUTPUT: dict[tuple[int, int], Matrix] = {
    (2, 3): _matrix("1 1 1 0, 0 1 -1 -1"),
    (4, 3): _matrix(
        "1 1 1 1 1 0, 0 3/4 -3/4 3/2 -3/2 0, 0 9/16 9/16 9/4 9/4 0, 0 27/64 -27/64 27/8 -27/8 1"
    ),
    (2, 5): _matrix("1 1 1 1 1 0, 0 3/4 -3/4 3/2 -3/2 1"),
}

# ------------------------------------------------------------------------------------ products


def _combination(terms: Sequence[tuple[Fraction, Any]]) -> tuple[int, Any]:
    """(sign, expression) of a sum of multiples; opposite sums give one expression."""
    sign = -1 if terms[0][0] < 0 else 1
    total = None
    for factor, value in terms:
        size = abs(factor)
        part = value if size == 1 else value * float(size)
        if total is None:
            total = part
        else:
            total = total + part if factor * sign > 0 else total - part
    return sign, total


def by_parity(matrix: Matrix, values: Sequence[Any]) -> list[Any]:
    """matrix @ values for rows in pairs that differ in the sign of their odd columns alone."""
    made = []
    for row in matrix:
        terms = [[(f, v) for f, v in zip(row[k::2], values[k::2]) if f] for k in (0, 1)]
        parts = sorted((_combination(t) for t in terms if t), key=lambda part: -part[0])
        sign, total = parts[0]
        total = total if sign > 0 else -total
        for sign, value in parts[1:]:
            total = total + value if sign > 0 else total - value
        made.append(total)
    return made


def by_pairs(matrix: Matrix, values: Sequence[Any]) -> list[Any]:
    """matrix @ values where columns 1 and 2, 3 and 4 are equal up to sign.

    The first factor of every row is positive.
    """
    made = []
    for row in matrix:
        terms = [(row[0], values[0])]
        for k in range(1, len(row) - 1, 2):
            combine = operator.add if row[k] == row[k + 1] else operator.sub
            terms.append((row[k], combine(values[k], values[k + 1])))
        terms.append((row[-1], values[-1]))
        made.append(_combination([term for term in terms if term[0]])[1])
    return made


# ------------------------------------------------------------------------------------ strips


@record(frozen=True)
class Strips:
    """The tiles of a batch of images of `height` x `width` results, m x m results each.

    Windows are `window` elements wide and high, and tiles are stored `even` at a time.

    A strip holds `rows` rows of tiles of each of `group` images; `blocks` strips cover an image.
    """

    m: int
    window: int
    images: int
    height: int
    width: int
    even: int = 1

    @property
    def reach(self) -> int:
        """Elements of x on each side of a tile."""
        return self.m + self.window - 1

    @property
    def dead(self) -> int:
        """Dead tiles at the end of a row, dead rows at the end of an image."""
        return -(-(self.window - 1) // self.m)

    @property
    def line(self) -> int:
        """Tiles in a row, live and dead."""
        return self.across + self.dead

    @property
    def lines(self) -> int:
        """Rows of tiles of an image in a strip, live and dead."""
        return self.rows + self.dead

    @property
    def places(self) -> int:
        """Tiles of a strip, live and dead."""
        return self.group * self.lines * self.line

    @property
    def spaced(self) -> bool:
        """Whether planes of scratch memory lie a number apart where sizes are open, too: they need
        no register each then.  Images of any width have none."""
        narrow = (1 + self.dead) * self.line <= tuned.winograd_strip
        return narrow and is_open((self.places,))

    @property
    def plane(self) -> int:
        """Tiles from one plane of scratch memory to the next."""
        return tuned.winograd_strip + SPARE if self.spaced else self.places

    @property
    def down(self) -> int:
        """Rows of tiles in an image."""
        return -(-self.height // self.m)

    @property
    def across(self) -> int:
        """Tiles in a row."""
        return -(-self.width // self.m)

    @property
    def tiles(self) -> int:
        return self.images * self.down * self.across

    @property
    def stored(self) -> int:
        """Tiles from one point to the next in memory; the spare ones are zero."""
        whole = -(-self.tiles // self.even) * self.even
        return whole + either(whole % SHARED, 0, SPARE)

    @property
    def rows(self) -> int:
        most: int = greatest(1, tuned.winograd_strip // self.line - self.dead)
        return -(-self.down // -(-self.down // most))

    @property
    def group(self) -> int:
        """Of an open number of images the last group may hold fewer."""
        most = greatest(1, tuned.winograd_strip // (self.lines * self.line))
        if is_open((self.images, most)):
            most = least(self.images, most)
        else:
            most = max(k for k in range(1, most + 1) if self.images % k == 0)
        return either(self.down - self.rows, 1, most)

    @property
    def fills_groups(self) -> bool:
        """Whether every group certainly has as many images as any other."""
        rest = self.images % self.group
        return not isinstance(rest, Size) and rest == 0

    @property
    def fills_strips(self) -> bool:
        """Whether every strip certainly has as many tiles as any other."""
        rest = self.down % self.rows
        return self.fills_groups and not isinstance(rest, Size) and rest == 0

    @property
    def blocks(self) -> int:
        return -(-self.down // self.rows)

    @property
    def count(self) -> int:
        """Strips in all."""
        return -(-self.images // self.group) * self.blocks

    def split(self, b: Scalars, unit: Expr) -> tuple[Any, Any, Any]:
        """(channel, first image, first row of tiles) of a unit: the strips of channel 0 first."""
        strip = unit % self.count
        image = strip // self.blocks
        row = strip % self.blocks
        return (unit // self.count, image * self.group, row * self.rows)

    def held(self, inside: Expr, image: Expr) -> Expr:
        """What is inside of an image, if there is such an image."""
        return inside if self.fills_groups else inside & (image < self.images)

    def left(self, image: Expr, row: Expr) -> Expr:
        """Tiles from a row of an image on, to the end of the group of images."""
        if self.fills_groups:
            return (self.group * self.down - row) * self.across
        return (minimum(self.images - image, self.group) * self.down - row) * self.across

    def tile(self, b: Scalars, image: Expr, row: Expr) -> Any:
        """The number of the first tile of a row of tiles."""
        line = b.affine([(image, self.down), (row, 1)])
        return line * self.across
