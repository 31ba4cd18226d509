"""Random programs over variables and donated arguments give what the interpreter gives."""

from __future__ import annotations

import pytest
from effort import rounds
from state_programs import check_program


@pytest.mark.parametrize("seed", range(rounds(30)))
def test_random_programs(seed):
    check_program(seed)
