"""Rows of an open length, in a version for each number of vectors that a short one has.

A loop over rows is written several times, one of which runs: what a row of so many vectors does is
known then, as for an exact length. Masks and branches are those of the loop, not of its rows.

    switch vectors of a row:      1: for all rows: one vector, masked
                                  2: for all rows: a whole vector, a masked one
                                  ...             any other: for all rows: loops
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.base.record import record, replace
from graphc.codegen.llvm.rows_in_lanes import rows_in_lanes
from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.vector_facts import VectorFacts, any_facts_of, has_masks, shape_of
from graphc.codegen.tuning import tuned
from graphc.ir.sizes import Size
from graphc.loops.facts import Changes, SumPlan, dissolves, extent_of
from graphc.loops.nest import For, Kernel, walk


@record(frozen=True)
class InLanes:
    """The loop over rows of `count` elements that has a row in each lane."""

    count: int
    loop: For
    facts: VectorFacts
    sums: SumPlan


@record(frozen=True)
class ShortRows:
    """Rows of a loop: all of one length, and versions for 1 to `most` vectors of `granule`
    elements. In one that is being written `vectors` says how many there are, 0 where any number.
    """

    row: For
    length: Size
    granule: int
    most: int
    vectors: int = 0
    in_lanes: tuple[InLanes, ...] = ()

    @property
    def text(self) -> str:
        """Which versions there are, in words."""
        parts = [f"elements up to {len(self.in_lanes)}"] if self.in_lanes else []
        parts += [f"vectors of {self.granule} up to {self.most}"] if self.most else []
        return f"rows of {self.length}: a version for each number of {', of '.join(parts)}"

    def vectors_of(self, loop: For) -> int:
        """How many granules a loop certainly begins, 0 if that is not known."""
        return self.vectors if length_of(loop) is self.length else 0


def length_of(loop: For) -> Size | None:
    """The iterations of a loop that are open and the same in all others around it."""
    length = extent_of(loop)
    return length if isinstance(length, Size) else None


def short_rows(
    statement: For, kernel: Kernel, target: Target, facts_of: Callable[[For], VectorFacts | None]
) -> ShortRows | None:
    """The rows of a loop, if all of its vector loops are as long and versions of it are few.

    Where they stand in it side by side, others may be longer: those are loops in each version.
    """
    rows = [
        s
        for s in walk(statement.body)
        if isinstance(s, For) and s.kind == "vector" and not dissolves(s, in_vector=False)
    ]
    if statement.kind == "vector" or not rows:
        return None
    open_rows = [row for row in rows if not isinstance(extent_of(row), int)]
    lengths = dict.fromkeys(map(length_of, open_rows))
    if not lengths or None in lengths or (len(lengths) > 1 and has_loops(statement, rows)):
        return None
    length = length_of(open_rows[0])
    assert length is not None
    row = open_rows[0]
    granule, most = by_vectors(rows, length, target, facts_of)
    in_lanes = lane_versions(statement, kernel, length, target)
    return ShortRows(row, length, granule, most, 0, in_lanes) if most or in_lanes else None


def has_loops(statement: For, rows: list[For]) -> bool:
    """Whether there are loops in it but for its rows and for what dissolves."""
    inside = [s for s in walk(statement.body) if isinstance(s, For) and s not in rows]
    return not all(dissolves(s, in_vector=False) for s in inside)


def by_vectors(
    rows: list[For], length: Size, target: Target, facts_of: Callable[[For], VectorFacts | None]
) -> tuple[int, int]:
    """Elements of a vector, and of how many vectors there are versions, 0 if there are none."""
    lanes, light, heavy = [], 0, 0
    for row in rows:
        facts = facts_of(row)
        shape = shape_of(facts, target, None) if facts is not None else None
        if facts is None or shape is None or not shape.masked:
            return 1, 0
        is_short = length_of(row) is length
        lanes += [shape.lanes] if is_short else []
        light += facts.weight if is_short and shape.apart else 0
        heavy += 0 if is_short and shape.apart else facts.weight
    most = tuned.short_rows
    while most and light * most * (most + 1) // 2 + heavy * most > tuned.row_versions:
        most -= 1
    return min(lanes), most


def lane_versions(
    statement: For, kernel: Kernel, length: Size, target: Target
) -> tuple[InLanes, ...]:
    """Versions for rows of 1, 2 .. elements, as long as they are little code."""
    made: list[InLanes] = []
    weight = 0
    while statement.kind == "parallel" and len(made) < tuned.lane_elements:
        version = lane_version(statement, kernel, length, len(made) + 1, target)
        weight += version.facts.weight if version is not None else 0
        if version is None or weight > tuned.lane_versions:
            break
        made.append(version)
    return tuple(made)


def lane_version(
    statement: For, kernel: Kernel, length: Size, count: int, target: Target
) -> InLanes | None:
    """The version for rows of so many elements, if vectors can do all of it."""
    loop = rows_in_lanes(statement, kernel, length, count)
    if loop is None:
        return None
    facts = any_facts_of(loop, kernel, Changes(kernel), has_masks(target))
    if facts is None or shape_of(facts, target, None) is None:
        return None
    return InLanes(count, loop, facts, SumPlan(replace(kernel, body=[loop])))
