"""Rules of resampling beside PyTorch's: modes, sizes, factors, corners, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import rounds
from expand import traced

import graphc.formats.torch.operators  # noqa: F401 - the rules
from graphc.formats.torch.table import find
from graphc.ops.reference.interpreter import interpret

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

MODES = {
    "upsample_nearest": (1, 2, 3),
    "_upsample_nearest_exact": (1, 2, 3),
    "upsample_linear": (1,),
    "upsample_bilinear": (2,),
    "upsample_trilinear": (3,),
    "upsample_bicubic": (2,),
    "_upsample_bilinear_aa": (2,),
    "_upsample_bicubic_aa": (2,),
}
FACTORS = (2.0, 0.5, 1 / 3, 1.0, 1.1, 1.2, 0.7, 3.0)
KNOWN = [  # operator, extents, sizes, corners, factors
    ("_upsample_bilinear2d_aa", (1, 5), (1, 1), True, (None, None)),
    ("_upsample_bicubic2d_aa", (5, 9), (7, 4), False, (None, None)),
    ("upsample_bilinear2d", (7, 6), (16, 6), False, (2.3, 1.1)),
    ("upsample_bicubic2d", (7, 6), (7, 6), False, (1.1, 1.1)),
    ("upsample_trilinear3d", (4, 3, 4), (4, 6, 4), False, (1.2, 2.0, 1.2)),
    ("upsample_nearest1d", (5,), (5,), None, (1.13,)),
    ("upsample_nearest2d", (6, 5), (6, 10), None, (1.1, 2.1)),
    ("upsample_nearest3d", (6, 5, 2), (6, 10, 2), None, (1.1, 2.1, 1.2)),
    ("_upsample_nearest_exact1d", (14,), (9,), None, (None,)),
]
Case = tuple[str, tuple[int, ...], tuple[int, ...], bool | None, tuple[float | None, ...]]


def drawn(r: np.random.Generator, start: str, rank: int) -> Case:
    extents = tuple(int(n) for n in r.integers(1, 15 if rank < 3 else 6, rank))
    name = start.removesuffix("_aa") + f"{rank}d" + ("_aa" if start.endswith("_aa") else "")
    corners = None if "nearest" in start else bool(r.integers(2))
    if r.random() < 0.5:
        sizes = tuple(int(n) for n in r.integers(1, 15 if rank < 3 else 6, rank))
        return name, extents, sizes, corners, (None,) * rank
    given = [(float(r.choice(FACTORS)), float(r.uniform(0.2, 3)))[r.integers(2)] for _ in extents]
    factors = [f if int(n * f) else 1.0 for n, f in zip(extents, given)]
    sizes = tuple(int(n * f) for n, f in zip(extents, factors))
    return name, extents, sizes, corners, tuple(factors)


def by_rule(name: str, array: Any, *arguments: Any) -> Any:
    """What the rule makes of arguments in the order of PyTorch's operator, interpreted."""
    rule = find(f"aten.{name}.default")
    schema = getattr(torch.ops.aten, name).default._schema
    named = dict(zip([a.name for a in schema.arguments][1:], arguments, strict=True))
    graph = traced(lambda x: rule.function(x, **named), [array])
    return interpret(graph, [array])[0]


def check(case: Case) -> None:
    name, extents, sizes, corners, factors = case
    values = np.random.default_rng(1).standard_normal((1, 2, *extents))
    x = torch.tensor(values, requires_grad=True)
    how = (() if corners is None else (corners,)) + factors
    expected = getattr(torch.ops.aten, name)(x, list(sizes), *how)
    made = by_rule(name, values, list(sizes), *how)
    bound = {"rtol": 1e-5, "atol": 1e-5, "err_msg": str(case)}
    np.testing.assert_allclose(made, expected.detach(), **bound)
    weights = np.random.default_rng(2).standard_normal(expected.shape)
    (wanted,) = torch.autograd.grad(expected, x, torch.tensor(weights))
    backward = f"{name}_backward"
    pulled = by_rule(backward, weights, list(sizes), list(values.shape), *how)
    np.testing.assert_allclose(pulled, wanted, **bound)


@pytest.mark.parametrize("case", KNOWN)
def test_what_pytorch_does_of_its_own(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("mode", [(m, rank) for m, ranks in MODES.items() for rank in ranks])
def test_resampling_agrees_with_pytorch(mode: tuple[str, int]) -> None:
    start, rank = mode
    r = np.random.default_rng([rank, *start.encode()])
    for _ in range(rounds(12)):
        case = drawn(r, start, rank)
        if not (start.endswith("_aa") and 1 in (case[1][-1], case[2][-1])):
            check(case)  # PyTorch 2 repeats the first row of antialiased images of width 1
