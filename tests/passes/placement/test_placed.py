"""Random programs on several devices with nested control flow and gradients: none is refused, all
have the bits of one device.  `python -m benchmarks.placed --count 2000` is the whole.
"""

from __future__ import annotations

import pytest
from effort import rounds

from benchmarks.placed import check, drawn


@pytest.mark.parametrize("seed", range(rounds(4)))
def test_random_placed_programs(seed: int) -> None:
    check(drawn(seed))
