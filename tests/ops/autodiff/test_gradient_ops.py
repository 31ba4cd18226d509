"""Every gradient rule of the registry against central differences in f64."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_harness import check_sample, differentiable_ops, is_smooth

from graphc.ir.op import Composite, Op, Scalar

MOST_ELEMENTS = 4096
SAMPLES = 6


OWN = list(differentiable_ops())  # before tests register more

# Samples of element-wise ops lie on poles and outside of domains: test_gradient_elementwise.py.
# Eigenvectors of matrices with complex eigenvalues are known up to phases: test_decompositions.py.
WHOLE = [op for op in OWN if not isinstance(op.lower, Scalar) and op.name != "eig"]


@pytest.mark.parametrize("op", WHOLE, ids=lambda op: op.name)
def test_gradient_equals_central_differences(op: Op) -> None:
    assert op.samples is not None, f"{op.name} has no samples"
    seen = set()
    for number, sample in enumerate(s for s in op.samples() if s.good and is_smooth(op, s)):
        shapes = tuple(np.shape(a) for a in sample.operands)
        kinds = tuple(np.asarray(a).dtype.kind for a in sample.operands)
        key = (shapes, kinds, str(sample.attrs))
        small = sum(np.size(a) for a in sample.operands) <= MOST_ELEMENTS
        if key in seen or not small or not any(k in "fcV" for k in kinds):
            continue
        seen.add(key)
        check_sample(op, sample, number, orders=2 if len(seen) <= SAMPLES else 1)
    assert seen


def test_every_op_has_a_rule_or_says_that_it_has_none() -> None:
    missing = [op.name for op in OWN if op.gradient is None and not isinstance(op.lower, Composite)]
    assert not missing
