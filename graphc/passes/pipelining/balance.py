"""balance: cutting a sequence into parts of which the slowest is as fast as can be.

    3 1 4 | 1 5 | 9 2      three parts: the slowest takes 11, and no cuts make it less

Exact, by dynamic programming over (parts, end of the part): fast enough for thousands of nodes, so
nothing is left to a heuristic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphc.errors import GraphError

MOST_POSITIONS = 1500  # a longer sequence is cut between blocks of its elements
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
        return [min(k + 1, count) for k in range(parts)]
    if count > MOST_POSITIONS:
        return _by_blocks(seconds, parts, sizes, limit, crossing)
    cost = _spans(seconds)
    if sizes is not None and limit is not None:
        cost = np.where(_spans(sizes) > limit, np.inf, cost)
    best = _tables(cost, np.maximum, parts)[-1][0][count]
    if not np.isfinite(best):
        raise GraphError(
            f"no cut into {parts} stages keeps each within {limit:,.0f} bytes",
            hint="take more stages, more chunks, or a larger limit",
        )
    bound = best * (SLACK if crossing is not None else 1) + 1e-12 * best
    apart = np.zeros(count + 1) if crossing is None else np.append(np.asarray(crossing), 0.0)
    # Of all cuts within the bound, those with the fewest bytes, then with the least sum of squares.
    price = np.where(cost <= bound, apart[:-1, None] + _evenness(cost, best, apart), np.inf)
    return _ends(_tables(price, np.add, parts), count)


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
