"""Gradients of every op with open extents: where a size is served it has the gradient of an exact
compilation.

As a script, `python tests/ops/test_open_gradients.py`: every sample and choice of open extents.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import few

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from gradient_harness import differentiable_ops, is_float
from op_samples import good_samples
from open_sizes import SIZES, OpenSample, Template, openings, wrong

from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.build import build
from graphc.ir.graph import Builder, Graph
from graphc.ir.op import OPS
from graphc.ir.types import Type
from graphc.ops.control.control import param_node

NAMES = [op.name for op in differentiable_ops()]
# Vectors are known up to a sign, and larger samples repeat rows: their factors have no gradient.
SKIPPED = (
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "qr",
    "svd",
    "svdvals",
    "least_squares",
    "pinv",
    "cholesky",
    "lu",
    "expm",
    "topk",
    "sort",
    "max",
    "min",
    "cummax",
    "cummin",
)


class OpenGradient:
    """The gradient of a sample by its operands of floating point, with some extents open."""

    def __init__(self, name: str, number: int, which: int) -> None:
        sample = good_samples(OPS[name])[number]
        self.sample = OpenSample(OPS[name], sample, openings(sample)[which])
        self.template = Template(self.graph(self.sample.graph()), self.sample.scope, threads=1)

    def graph(self, forward: Graph) -> Graph:
        results = tuple(r for r in forward.results if is_float(r))
        region = forward.replace(results=results)
        wrt = tuple(k for k, p in enumerate(region.params) if is_float(p))
        kinds = [n.type for n in (*region.params, *results)]
        params = tuple(
            param_node(k, kind) for k, kind in enumerate(kinds) if isinstance(kind, Type)
        )
        builder, seeds = Builder(len(params)), len(results)
        attrs = {"wrt": wrt, "seeds": seeds}
        made = builder.emit(OPS["grad"], params, attrs, regions=(region,))
        items = [builder.emit(OPS["item"], (made,), {"index": seeds + k}) for k in range(len(wrt))]
        return Graph("g", params, builder.nodes, tuple(items))

    def case(self, size: int) -> tuple[list[Any], list[Any]] | None:
        """Operands and cotangents of this size, and the gradients of an exact compilation."""
        sizes = dict.fromkeys(self.sample.symbols, size)
        forward = self.sample.case(sizes)
        if forward is None:
            return None
        rng = np.random.default_rng(0)
        arrays, wants = forward
        seeds = [
            rng.uniform(-1, 1, w.shape).astype(w.dtype) for w in wants if w.dtype.kind in "fcV"
        ]
        given = [*arrays, *seeds]
        exact = OpenSample(self.sample.op, self.sample.given, ())
        exact.symbols = dict(sizes)
        try:
            made = build(self.graph(exact.graph()), Config.create(threads=1)).executable(*given)
        except GraphError:
            return None
        return given, list(made) if isinstance(made, tuple) else [made]

    def check(self, sizes: tuple[int, ...]) -> int:
        served = 0
        for size in sizes:
            case = self.case(size)
            got = None if case is None else self.template.run(case[0])
            if case is not None and got is not None:
                assert not wrong(got, case[1]), (self.sample.op.name, self.sample.symbols, size)
                served += 1
        return served


def opened(name: str, number: int = 0, which: int = 0) -> OpenGradient | None:
    try:
        return OpenGradient(name, number, which)
    except (GraphError, TypeError, AssertionError, IndexError):
        return None  # it takes numbers only, and is compiled for each size


@pytest.mark.parametrize("name", few([n for n in NAMES if n not in SKIPPED], 40))
def test_gradients_serve_open_sizes(name: str) -> None:
    with np.errstate(all="ignore"):
        found = opened(name)
        if found is not None:
            found.check((1, 2, 7))


def main() -> None:
    """Every sample and every choice of open extents."""
    for name in NAMES:
        served = refused = 0
        with np.errstate(all="ignore"):
            for number, sample in enumerate(good_samples(OPS[name])):
                for which in range(len(openings(sample))):
                    found = opened(name, number, which)
                    try:
                        served += found.check(SIZES[:5]) if found is not None else 0
                    except AssertionError as error:
                        print(name, number, which, error)
                    refused += found is None
        print(name, served, f"{refused} compiled for each size" if refused else "", flush=True)


if __name__ == "__main__":
    main()
