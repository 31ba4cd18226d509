"""What formulas of sizes are made of, beside sums and products: of numbers, when arrays come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST_TRIED = 1024


def even_parts(extent: int, most: int, start: int) -> int:
    """How many parts of at most about `most` cover an extent with little overlap, where starting
    one costs as much as `start` of the extent; at least one.

    Parts begin `extent // count` apart, and the last one ends where the extent does.
    """
    fewest = max(1, -(-extent // max(1, most)))

    def cost(count: int) -> int:
        return count * (extent - (count - 1) * (extent // count) + start)

    last = min(extent, 2 * fewest, fewest + MOST_TRIED)
    return min(range(fewest, last + 1), key=cost, default=1)


# By kind: of how many parts at least, and the value for them.
KINDS: dict[str, tuple[int, Callable[[Sequence[int]], int]]] = {
    "floor": (2, lambda parts: parts[0] // parts[1] if parts[1] else 0),
    "max": (1, max),
    "min": (1, min),
    "choice": (3, lambda parts: parts[1] if parts[0] > 0 else parts[2]),
    "parts": (3, lambda parts: even_parts(*parts[:3])),
    "extent": (1, lambda parts: max(0, parts[0])),
}
