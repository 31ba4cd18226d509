"""Random losses in random stages by random schedules have the gradients of the whole, in the
memory that was planned.

GRAPHC_FUZZ=n takes n times as many draws; 1,000 are GRAPHC_FUZZ=250.
"""

from __future__ import annotations

import numpy as np
import pytest
from effort import rounds
from piped_losses import WIDTH, random_loss, random_schedule

import graphc as gc
from graphc import parallel
from graphc.ir.liveness import peak_bytes
from graphc.learn.trees import tree_map

DEVICES = [f"cpu:{k}" for k in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(4)))
def test_gradients_are_those_of_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    devices = DEVICES[: rng.integers(1, 4)]
    asked = bool(rng.integers(2))
    loss, params = random_loss(rng, devices if asked else [])
    rows, chunks = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    batch = rng.standard_normal((rows, WIDTH)), rng.standard_normal((rows, WIDTH))
    wanted = gc.compile(gc.value_and_grad(loss), devices=devices)(params, batch)
    chunks = len(parallel.sizes(rows, chunks))
    stages = None if asked else int(rng.integers(1, 4))
    schedule = "1f1b" if asked else random_schedule(rng, stages or 1, chunks, len(devices))
    mode = str(rng.choice(["always", "except_last", "never"]))
    piped = parallel.pipeline(loss, devices, chunks, schedule, mode, stages=stages)
    compiled = gc.compile(piped, devices=devices)
    made = compiled(params, batch)
    tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10), made, wanted)
    frames = compiled.executable(params, batch).frames
    planned = [peak_bytes(graph) for graph in compiled.lower(params, batch).graphs]
    assert frames
    for frame in frames:
        assert [each.arena.nbytes for each in getattr(frame, "frames", [frame])] == planned
