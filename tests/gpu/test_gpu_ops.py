"""Every op of the registry on a GPU equals the reference: the cases of `test_ops.py`, once as they
are and once with fresh values, in memory full of NaN and then in memory that was used before."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_harness import (
    FEW_BLOCKS,
    GPU,
    SEED,
    SIMULATED,
    crossed,
    last_first,
    need_gpu,
    rng,
    some,
    use_chip,
    varied,
)
from op_samples import SAMPLED, check, expected, good_samples, samples_function

from graphc.ir.op import OPS

need_gpu()
pytestmark = pytest.mark.gpu
ON_GPU = [name for name in SAMPLED if not OPS[name].traits.on_cpu]


@pytest.mark.parametrize(("name", "opt"), crossed(ON_GPU, [0, 2]))
def test_op_equals_reference(name: str, opt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if opt == 0:
        use_chip(monkeypatch, FEW_BLOCKS)
        last_first(monkeypatch)
    op = OPS[name]
    samples = some(good_samples(op), 2, SAMPLED.index(name))
    run = samples_function(op, samples, opt=opt, devices=GPU)
    fresh = [varied(s, rng(k, opt)) for k, s in enumerate(samples)]
    rounds = [samples, fresh]
    if SIMULATED:
        rounds = [fresh if opt == 0 else samples]
    for given in rounds:
        results = run([[np.asarray(o) for o in s.operands] for s in given])
        for number, (sample, got) in enumerate(zip(given, results, strict=True)):
            kinds, wants = expected(op, sample)
            where = f"{name} sample {number}, seed {SEED}: {sample.operands} {sample.attrs}"
            check(got, kinds, wants, sample.tolerance, where)
