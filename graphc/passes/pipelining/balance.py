"""balance: cutting a sequence into parts of which the slowest is as fast as can be.

    3 1 4 | 1 5 | 9 2      three parts: the slowest takes 11, and no cuts make it less

Exact, by dynamic programming over (parts, end of the part): fast enough for thousands of nodes, so
nothing is left to a heuristic.

A graph has more cuts than the sequence of its nodes: `assigned` searches them by branch and bound
(Land and Doig, 1960), from the best cut of the sequence on, and says how far from the best its
result may be if it is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError

MOST_POSITIONS = 1500  # a longer sequence is cut between blocks of its elements
MOST_STEPS = 20_000  # of a search
NEARLY = 1e-9  # relative; less is rounding
SLACK = 1.02  # how much slower the slowest part may be for fewer bytes between the parts


def balanced(
    seconds: Sequence[float],
    parts: int,
    sizes: Sequence[float] | None = None,
    limit: float | None = None,
    crossing: Sequence[float] | None = None,
) -> list[int]:
    """The ends of the parts: part k has the elements from end k - 1 up to end k.

    sizes, limit    bytes of each element, and the most that a part may have
    crossing        bytes that cross a cut before each element: of cuts that are as good within
                    2 %, those with the fewest are taken (of equally good ones where it is None)

    No part is empty unless there are fewer elements than parts.  Raises GraphError where no cut
    keeps every part within the limit.
    """
    count = len(seconds)
    if parts < 1:
        raise GraphError(f"a sequence is cut into one part or more, got {parts}")
    if count <= parts:
        if sizes is not None and limit is not None and max(sizes, default=0) > limit:
            raise _none_fits(parts, limit)
        return [min(k + 1, count) for k in range(parts)]
    if count > MOST_POSITIONS:
        return _by_blocks(seconds, parts, sizes, limit, crossing)
    cost = _spans(seconds)
    if sizes is not None and limit is not None:
        cost = np.where(_spans(sizes) > limit, np.inf, cost)
    best = _tables(cost, np.maximum, parts)[-1][0][count]
    if not np.isfinite(best):
        raise _none_fits(parts, limit)
    bound = best * (SLACK if crossing is not None else 1) + 1e-12 * best
    apart = np.zeros(count + 1) if crossing is None else np.append(np.asarray(crossing), 0.0)
    # Of all cuts within the bound, those with the fewest bytes, then with the least sum of squares.
    price = np.where(cost <= bound, apart[:-1, None] + _evenness(cost, best, apart), np.inf)
    return _ends(_tables(price, np.add, parts), count)


def _none_fits(parts: int, limit: float | None) -> GraphError:
    return GraphError(
        f"no cut into {parts} stages keeps each within {limit:,.0f} bytes",
        hint="take more stages, more chunks, or a larger limit",
    )


def _evenness(cost: np.ndarray, best: float, apart: np.ndarray) -> np.ndarray:
    """So small that it decides among equal bytes only: how uneven the parts are."""
    finite = np.where(np.isfinite(cost), cost, 0.0)
    scale = max(float(apart.max()), 1.0) * 1e-9
    return scale * (finite / best) ** 2 if best else np.zeros_like(cost)


def _spans(values: Sequence[float]) -> np.ndarray:
    """[a, b]: the sum of elements a up to b; infinite where that is none."""
    total = np.concatenate([[0.0], np.cumsum(np.asarray(values, float))])
    sums = total[None, :] - total[:-1, None]
    below = np.tri(len(values), len(values) + 1, dtype=bool)
    return np.where(below, np.inf, sums)


def _tables(cost: np.ndarray, join: np.ufunc, parts: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each number of parts: the best price of elements up to each, and where its last part
    begins."""
    count = cost.shape[0]
    price = np.full(count + 1, np.inf)
    price[0] = 0.0
    made = []
    for _ in range(parts):
        whole = join(price[:-1, None], cost)
        begin = np.argmin(whole, axis=0)
        price = np.take_along_axis(whole, begin[None, :], axis=0)[0]
        made.append((price, begin))
    return made


def _ends(tables: list[tuple[np.ndarray, np.ndarray]], count: int) -> list[int]:
    ends = [count]
    for _, begin in reversed(tables[1:]):
        ends.append(int(begin[ends[-1]]))
    return ends[::-1]


def _by_blocks(
    seconds: Sequence[float],
    parts: int,
    sizes: Sequence[float] | None,
    limit: float | None,
    crossing: Sequence[float] | None,
) -> list[int]:
    """Neighbours as one element, so that each takes about as long."""
    total = np.cumsum(np.asarray(seconds, float))
    steps = np.linspace(0, total[-1], MOST_POSITIONS)[:-1]
    starts = np.unique(np.searchsorted(total, steps)).clip(0, len(seconds) - 1)
    starts = np.unique(np.append(0, starts))
    pick = [float(x) for x in np.add.reduceat(np.asarray(seconds, float), starts)]
    bulk = None if sizes is None else np.add.reduceat(np.asarray(sizes, float), starts)
    apart = None if crossing is None else np.asarray(crossing, float)[starts]
    ends = balanced(
        pick,
        parts,
        None if bulk is None else [float(x) for x in bulk],
        limit,
        None if apart is None else [float(x) for x in apart],
    )
    return [int(starts[end]) if end < len(starts) else len(seconds) for end in ends]


# ------------------------------------------------------------------------------------ graphs


@record(frozen=True)
class Assigned:
    """The part of each node of a graph, what the slowest part takes, and a time that no parts can
    be faster than."""

    part: list[int]
    slowest: float
    bound: float

    @property
    def gap(self) -> float:
        """By how much the slowest part may be slower than necessary: 0.1 is 10 %."""
        return self.slowest / self.bound - 1 if self.bound else 0.0


def assigned(
    seconds: Sequence[float],
    before: Sequence[Sequence[int]],
    parts: int,
    steps: int = MOST_STEPS,
    sizes: Sequence[float] | None = None,
    limit: float | None = None,
) -> Assigned:
    """Parts of a graph that takes its edges forward only, with the fastest slowest part.

    `before` has the numbers of the nodes that each one reads, which are smaller than its own;
    `sizes` and `limit` are as for `balanced`.  The result is the best there is unless the search
    was stopped after `steps` nodes; then it may be slower than that by its `gap`.
    """
    ends = balanced(seconds, parts, sizes, limit)
    found = [k for k, (a, b) in enumerate(pairwise([0, *ends])) for _ in range(a, b)]
    bulk = [0.0] * len(seconds) if sizes is None or limit is None else sizes
    search = _Search(seconds, before, parts, found, bulk, limit or 0.0)
    search.left = steps
    search.run()
    finished = search.left > 0 or search.best <= search.bound * (1 + NEARLY)
    return Assigned(search.found, search.best, search.best if finished else search.bound)


class _Search:
    """Depth first over the nodes in order: to each the first part that it may be in, and later
    ones, as long as what is left can still fit in less than the best known."""

    def __init__(
        self,
        seconds: Sequence[float],
        before: Sequence[Sequence[int]],
        parts: int,
        found: list[int],
        sizes: Sequence[float],
        limit: float,
    ) -> None:
        self.seconds = seconds
        self.before = before
        self.parts = parts
        self.found = found
        self.sizes = sizes
        self.limit = limit
        self.left = MOST_STEPS
        loads = [0.0] * parts
        for node, part in enumerate(found):
            loads[part] += seconds[node]
        self.best = max(loads, default=0.0)
        self.rest = [*accumulate(reversed(seconds), initial=0.0)][::-1]  # from each node on
        self.bound = max([self.rest[0] / parts, *seconds], default=0.0)

    def run(self) -> None:
        count = len(self.seconds)
        part, loads, bytes = [-1] * count, [0.0] * self.parts, [0.0] * self.parts
        node = 0
        while node >= 0 and self.left > 0 and self.best > self.bound * (1 + NEARLY):
            self.left -= 1
            if node == count:
                self.best, self.found = max(loads), part.copy()
                node -= 1
                continue
            if part[node] >= 0:
                loads[part[node]] -= self.seconds[node]
                bytes[part[node]] -= self.sizes[node]
            least = max((part[n] for n in self.before[node]), default=0)
            following = max(part[node] + 1, least)
            while following < self.parts and not (
                bytes[following] + self.sizes[node] <= self.limit
                and self.fits(node, following, loads)
            ):
                following += 1
            if following == self.parts:
                part[node] = -1
                node -= 1
                continue
            part[node] = following
            loads[following] += self.seconds[node]
            bytes[following] += self.sizes[node]
            node += 1

    def fits(self, node: int, part: int, loads: Sequence[float]) -> bool:
        """May something better come of it?"""
        most = self.best * (1 - NEARLY)
        if loads[part] + self.seconds[node] >= most:
            return False
        free = sum(most - load for load in loads)
        return free > self.rest[node]
