"""Composite ops: their expansion, interpreted with NumPy, equals the reference on every sample."""

from __future__ import annotations

import numpy as np
import pytest
from expand import run_composite
from op_harness import close

from graphc.errors import GraphError
from graphc.ir.op import OPS, Composite
from graphc.ir.types import leaves
from graphc.ops.record.value import literal_type

# Those with regions have no samples: test_control.py and test_gradient_markers.py run
# them.
COMPOSITES = [
    name for name, op in OPS.items() if isinstance(op.lower, Composite) and not op.regions
]
for _name in ("axis_sum", "axis_gather", "axis_slice"):  # refused outside of a vmap: test_vmap.py
    COMPOSITES.remove(_name)


@pytest.mark.parametrize("name", COMPOSITES)
def test_expansion_equals_reference(name):
    op = OPS[name]
    for sample in op.samples():
        arrays = [np.asarray(o) for o in sample.operands]
        types = tuple(map(literal_type, arrays))
        if not sample.good:
            with pytest.raises(GraphError):
                op.result_type(types, op.coerce(sample.attrs))
            continue
        attrs = op.coerce(sample.attrs)
        results = leaves(op.result_type(types, attrs))
        made = run_composite(op, arrays, attrs)
        with np.errstate(all="ignore"):
            wants = op.reference(*arrays, **attrs.values_dict)
        wants = wants if isinstance(wants, tuple) else (wants,)
        for got, want, result in zip(made, map(np.asarray, wants), results, strict=True):
            assert got.shape == want.shape == result.shape
            assert got.dtype == result.dtype.numpy
            close(got, want.astype(got.dtype), result.dtype, sample.tolerance)
