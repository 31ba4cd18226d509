"""Random typed graphs with open sizes, between closed pages, equal the reference."""

from __future__ import annotations

import pytest
from effort import EFFORT, few
from open_graphs import check

TURNS = [(opt, threads) for opt in (0, 2) for threads in (1, 2)]
NUMBERS = range(2000) if EFFORT > 1 else few(range(2000), 24)


@pytest.mark.parametrize("part", range(4))
def test_random_programs_with_open_sizes_equal_the_reference(part: int) -> None:
    served = refused = 0
    for number in NUMBERS[part::4]:
        turns = TURNS if EFFORT > 1 else [TURNS[part]]
        more, less = check(number, turns)
        served, refused = served + more, refused + less
    assert served > refused
