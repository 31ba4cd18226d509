"""Every op with open extents: sizes it serves equal the reference, and guards do not creep in.

As a script, `python tests/ops/test_open_ops.py`: every sample, every extent alone, up to 1000.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import few

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from factor_checks import CHECKS, random_matrix, wrong_factors
from op_samples import SAMPLED, good_samples
from open_sizes import SIZES, OpenSample, Template, openings, wrong

from graphc.errors import GraphError
from graphc.ir.op import OPS

# Larger samples repeat rows; factors of such matrices are not unique, and these are random ones.
OF_MATRICES = ("eig", "eigh", "eigvals", "eigvalsh", "qr", "svd", "least_squares", "pinv", "expm")
# What the first sample of an op with all extents open asks for: numbers ("=") and other guards.
REFUSED = (
    "conv_weights",
    "digits_matmul",
    "extent",
    "fft",
    "iota",
    "irfft",
    "packed_matmul",
    "rfft",
    "tile_choose",
    "winograd_weight",
)
GUARDS: dict[str, tuple[int, int]] = {
    "all_to_all": (2, 3),  # rows are dealt to two devices
    "argmax": (0, 2),
    "argmin": (0, 2),
    "argsort": (0, 1),
    "argsort_keys": (0, 1),
    "attention": (1, 3),
    "attention_backward": (1, 3),
    "broadcast": (0, 1),
    "cholesky": (0, 3),
    "conv": (0, 9),
    "conv_windows": (2, 10),
    "cross_entropy": (0, 1),
    "dynamic_slice": (0, 2),
    "dynamic_update_slice": (0, 2),
    "eig": (0, 2),
    "eigh": (0, 2),
    "eigvals": (0, 2),
    "eigvalsh": (0, 3),
    "fused_attention": (0, 2),
    "fused_attention_backward": (0, 2),
    "least_squares": (0, 3),
    "log_softmax": (0, 1),
    "logsumexp": (0, 1),
    "lu": (0, 3),
    "lu_solve": (0, 4),
    "matmul": (0, 1),
    "sparse_adjoint": (1, 0),
    "sparse_matmul": (0, 1),
    "sparse_sampled": (2, 0),
    "max": (0, 1),
    "min": (0, 1),
    "pad": (0, 2),
    "pinv": (0, 2),
    "pool": (0, 2),
    "pool_choice": (0, 2),
    "qr": (0, 3),
    "random_bits": (1, 0),
    "random_fold": (1, 0),
    "random_normal": (1, 0),
    "random_split": (1, 0),
    "random_uniform": (1, 0),
    "reshape": (1, 0),
    "reduce_scatter": (1, 2),
    "searchsorted": (0, 1),
    "slice": (0, 2),
    "slice_update": (0, 6),  # of two axes
    "softmax": (0, 1),
    "solve": (0, 5),
    "sort": (0, 1),
    "sort_keys": (0, 1),
    "svd": (0, 2),
    "svdvals": (0, 3),
    "take_along": (0, 1),
    "tile_pool": (2, 2),
    "topk": (0, 1),
    "winograd_input": (0, 3),
    "winograd_output": (2, 0),
}


def opened(name: str, number: int = 0, which: int = 0) -> tuple[OpenSample, Template] | None:
    sample = good_samples(OPS[name])[number]
    choices = openings(sample)
    if not choices:
        return None
    of_size = random_matrix if name in OF_MATRICES else None
    made = OpenSample(OPS[name], sample, choices[which], of_size)
    try:
        return made, Template(made.graph(), made.scope, threads=1)
    except (GraphError, TypeError, AssertionError):
        return None  # it takes numbers only, and is compiled for each size


def checked(made: OpenSample, template: Template, sizes: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    for size in sizes:
        case = made.case(dict.fromkeys(made.symbols, size))
        if case is None:
            continue
        arrays, wants = case
        got = template.run(arrays)
        found["refused" if got is None else "served"] += 1
        if got is not None:
            name = made.op.name
            trouble = (
                wrong_factors(name, arrays, got, wants) if name in CHECKS else wrong(got, wants)
            )
            assert not trouble, (made.op, made.symbols, size, trouble)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_MATRICES)
def test_decompositions_serve_open_sizes(name: str) -> None:
    """Of many matrices, tall, wide and without elements, too."""
    served: Counter[str] = Counter()
    for number in range(min(4, len(good_samples(OPS[name])))):
        for which in range(len(openings(good_samples(OPS[name])[number]))):
            found = opened(name, number, which)
            assert found is not None
            served += checked(*found, (0, 1, 2, 7, 64) if which else (0, 1, 2, 7))
    assert served["served"] > 10


def guards(template: Template) -> tuple[int, int]:
    fixed = sum(g.relation == "==" and g.holds for g in template.guards)
    return fixed, len(template.guards) - fixed


@pytest.mark.parametrize("name", few(SAMPLED, 60))
def test_ops_serve_open_sizes(name: str) -> None:
    with np.errstate(all="ignore"):
        found = opened(name)
        if found is None:
            assert name in REFUSED, f"{name} is compiled for each size now"
            return
        most = GUARDS.get(name, (0, 0))
        assert all(n <= m for n, m in zip(guards(found[1]), most, strict=True)), found[1].guards
        checked(*found, (0, 1, 7))


def main() -> None:
    """Every sample and every choice of open extents; prints the table of the first ones."""
    for name in SAMPLED:
        with np.errstate(all="ignore"):
            for number, sample in enumerate(good_samples(OPS[name])):
                for which in range(len(openings(sample))):
                    found = opened(name, number, which)
                    if not number and not which:
                        print(f'    "{name}": {guards(found[1])},' if found else f"refused {name}")
                    if found is not None:
                        checked(*found, SIZES)
                    if "--first" in sys.argv:
                        break
                if "--first" in sys.argv:
                    break


if __name__ == "__main__":
    main()
