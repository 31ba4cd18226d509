"""Are the facts that `codegen/llvm/microarchitectures.py` tells of this machine's CPU so?

    python -m benchmarks.microarchitecture

Cases that a fact decides are compiled as the table says and as if it said the contrary; the two
take turns.  Above 1 the table is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

from benchmarks.tune import Judge, compiled, normal, ratio
from graphc.base.record import replace
from graphc.codegen.llvm import target
from graphc.codegen.llvm.microarchitectures import microarchitecture

PLACES = np.random.default_rng(0).integers(0, 256, (2000, 256))
CASES = {
    "double_pumped": {
        "negative of 64 MB": lambda: Judge(np.negative, (normal(4096, 4096),)),
        "rows of 64 MB in two": lambda: Judge(
            lambda x: np.concatenate([x[:, 2048:], x[:, :2048]], 1), (normal(4096, 4096),)
        ),
        "sum of two of 32 MB": lambda: Judge(np.add, (normal(2048, 4096), normal(2048, 4096))),
    },
    "slow_gathers": {
        "elements of rows": lambda: Judge(
            lambda x, at: np.take_along_axis(x, at, 1), (normal(2000, 256), PLACES)
        ),
        "elements of columns": lambda: Judge(
            lambda x, at: np.take_along_axis(x, at, 0), (normal(256, 256), PLACES)
        ),
        "places in a sorted table": lambda: Judge(
            np.searchsorted, (np.sort(normal(1000)), normal(200_000))
        ),
    },
}


@contextmanager
def contrary(fact: str) -> Iterator[None]:
    """This machine's CPU is as if the table said the contrary."""
    cpu = target.host().cpu
    real = microarchitecture(cpu)
    other = replace(real, **{fact: not getattr(real, fact)})
    with mock.patch.object(target, "microarchitecture", return_value=other):
        yield


def main() -> None:
    cpu = target.host().cpu
    for fact, cases in CASES.items():
        print(f"{cpu}: {fact} is {getattr(microarchitecture(cpu), fact)}")
        for name, case in cases.items():
            ours = compiled(case())
            with contrary(fact):
                other = compiled(case())
            same = other.content == ours.content
            found = "the same code" if same else f"{1 / ratio(ours.run, other.run):.2f}"
            print(f"    {name:<28}{found}")


if __name__ == "__main__":
    main()
