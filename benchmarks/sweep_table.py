"""Every case of the sweep by name, and the few of a quick run."""

from __future__ import annotations

from benchmarks import sweep_cases, sweep_library
from benchmarks.sweep_cases import Swept

FAMILIES = (
    sweep_cases.elementwise,
    sweep_cases.chains,
    sweep_cases.layouts,
    sweep_cases.casts,
    sweep_cases.reductions,
    sweep_cases.movement,
    sweep_library.products,
    sweep_library.decompositions,
    sweep_library.sorts,
    sweep_library.random_numbers,
    sweep_library.transforms,
    sweep_library.images,
    sweep_library.layers,
    sweep_library.models,
)
CASES: dict[str, Swept] = {case.name: case for family in FAMILIES for case in family()}
QUICK = ("elementwise/add-tiny-f32", "reduce/sum-all-L1-f32")
