"""What tests for GPUs share. They run on simulated GPUs at tiny sizes and on gpu:0 at real ones.

NUMBA_ENABLE_CUDASIM=1 pytest tests/gpu     the simulator (test_cuda_simulator.py does this)
pytest -m gpu                               the GPU; skipped where there is none
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from itertools import product
from typing import Any, TypeVar

import effort
import numpy as np
import pytest

from graphc.codegen import kernels
from graphc.codegen.build import build
from graphc.codegen.gpu import arch as chip
from graphc.codegen.gpu.arch import Chip
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph
from graphc.ir.op import Sample
from graphc.ir.types import dtype
from graphc.passes import pipeline
from graphc.runtime.cuda.drivers import open_driver
from graphc.runtime.cuda.interface import Driver
from graphc.runtime.devices.registry import present_chip

SIMULATED = present_chip() == "simulator"
GPU = ["gpu:0"]
# Fresh inputs on every run of a GPU; failures name the seed.
SEED = int(os.environ.get("GRAPHC_TEST_SEED", 0 if SIMULATED else secrets.randbelow(1 << 32)))
# Other shapes of the simulated chip: groups that take several units, and more blocks than units.
FEW_BLOCKS = Chip("simulator", threads=8, blocks=2, warp=4)
MANY_BLOCKS = Chip("simulator", threads=4, blocks=16, warp=4)
T = TypeVar("T")
S = TypeVar("S")


def sized(simulated: T, real: T) -> T:
    """What fits the simulator, or a GPU."""
    return simulated if SIMULATED else real


def some(items: Iterable[T], count: int, turn: int = 0) -> list[T]:
    """A few of the items in the simulator, all of them on a GPU."""
    return effort.few(items, count, turn) if SIMULATED else list(items)


def crossed(first: Iterable[T], second: Iterable[S]) -> list[tuple[T, S]]:
    """All pairs on a GPU; in the simulator the second take turns."""
    return effort.crossed(first, second) if SIMULATED else list(product(first, second))


def opened() -> Driver:
    """The driver of gpu:0. Raises GraphError where there is none."""
    return open_driver(present_chip(), GPU[0])


def need_gpu() -> None:
    """Skip the module that calls this where nothing runs it."""
    if SIMULATED:
        return
    try:
        opened().enter()
    except (GraphError, ImportError, OSError) as error:
        pytest.skip(f"there is no GPU: {error}", allow_module_level=True)


def use_chip(monkeypatch: pytest.MonkeyPatch, shape: Chip) -> dict[Any, Any]:
    """Have the simulator be another chip, for one test; the kernels that are made for it."""
    specs: dict[Any, Any] = {}
    monkeypatch.setattr(chip, "SIMULATED", shape)
    monkeypatch.setattr(kernels, "_SPECS", specs)
    return specs


def last_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have simulated threads take turns from the last one down: a lane that reads what the first
    one has yet to write finds out."""
    if not SIMULATED:
        return
    from graphc.gpu import kernel_simulator

    monkeypatch.setattr(kernel_simulator, "order", lambda threads, chance: threads.reverse())


def rng(*salt: int) -> np.random.Generator:
    return np.random.default_rng((SEED, *salt))


def run_graph(g: Graph, arrays: list[Any], **options: Any) -> list[Any]:
    """The results of a graph on the GPU."""
    config = Config(threads=1, **{"devices": tuple(GPU), **options})
    executable, _ = build(pipeline.run(g, config)[-1].value, config)
    return list(executable.run(arrays))


def varied(sample: Sample, random: np.random.Generator) -> Sample:
    """The sample with its floats scaled a little: signs, orders of magnitude, equal elements and
    symmetries stay, so that every op finds it as legal as before.
    """

    def moved(operand: Any) -> Any:
        array = np.asarray(operand)
        if dtype(array.dtype).kind not in "fc":
            return array
        return (array * random.uniform(0.9, 1.0)).astype(array.dtype)

    return Sample(
        tuple(moved(o) for o in sample.operands), sample.attrs, tolerance=sample.tolerance
    )
