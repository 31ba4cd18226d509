"""Generated from the op table: every op, every sample, opt 0 or 2 (GRAPHC_FUZZ=2: both).

The compiled result has the inferred type and the reference's value; bad samples raise.  All good
samples of an op run as one compiled function, so that an op costs one compile per level.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import case
from effort import crossed, few
from op_samples import SAMPLED, check, expected, good_samples, samples_function

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.op import OPS, Structural
from graphc.ir.traits import Traits
from graphc.ir.types import dtype
from graphc.ops.record.value import literal_type

gc.sum  # noqa: B018  a public name fills the op table

BARE = {n for n, op in OPS.items() if op.samples is None and not op.is_custom}


def run_all(op, samples, opt):
    operands = [[np.asarray(o) for o in s.operands] for s in samples]
    return samples_function(op, samples, opt=opt)(operands)


def as_signed(name, got, wants):
    """Eigenvectors with the signs, or phases, of the wanted ones: rounding decides those."""
    if name != "eigh":
        return got
    values, vectors = got
    along = (np.conj(vectors) * wants[1]).sum(axis=-2, keepdims=True)
    return values, vectors * np.where(along == 0, 1, along / np.where(along == 0, 1, np.abs(along)))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "opt"), crossed(SAMPLED, [0, 2]))
def test_compiled_equals_reference(name, opt):
    op = OPS[name]
    samples = few(good_samples(op), 3, SAMPLED.index(name))
    results = run_all(op, samples, opt)
    for number, (sample, got) in enumerate(zip(samples, results, strict=True)):
        kinds, wants = expected(op, sample)
        operands = [f"{dtype(np.asarray(o).dtype)}{list(np.shape(o))}" for o in sample.operands]
        where = f"{name} sample {number}: {', '.join(operands)} {sample.attrs}"
        check(as_signed(name, got, wants), kinds, wants, sample.tolerance, where)


def test_bad_samples_raise() -> None:
    for name in SAMPLED:
        with case(name):
            op = OPS[name]
            for sample in op.samples():
                if not sample.good:
                    types = tuple(literal_type(np.asarray(o)) for o in sample.operands)
                    with pytest.raises(GraphError):
                        op.result_type(types, op.coerce(sample.attrs))


def test_every_op_has_samples():
    """Only ops that the compiler itself gives meaning to go without."""
    alone = {n for n in BARE if isinstance(OPS[n].lower, Structural) or OPS[n].regions}
    of_slices = {"axis_gather", "axis_slice", "axis_sum"}  # which `vmap` expands
    assert alone | of_slices | {"barrier"} == BARE


def test_every_dtype_an_op_declares_is_sampled() -> None:
    for name in SAMPLED:
        with case(name):
            op = OPS[name]
            seen = {
                dtype(np.asarray(s.operands[0]).dtype).name for s in good_samples(op) if s.operands
            }
            assert not seen or set(op.dtypes) <= seen, sorted(set(op.dtypes) - seen)


def test_every_attribute_states_its_range():
    """Numbers lie in a range, dtypes are among choices; both are checked before any type rule."""
    for op in OPS.values():
        for attr in op.attrs:
            assert attr.is_stated, f"{op}: {attr.name}"


def test_values_outside_an_attribute_s_range_are_trouble() -> None:
    for name in sorted(n for n, op in OPS.items() if op.attrs):
        with case(name):
            for attr in OPS[name].attrs:
                if attr.within is not None:
                    outside = (10**5000, -(10**5000), float("nan"), float("inf"))
                    listed = attr.kind in ("ints", "dims")
                    assert all(attr.trouble((v,) if listed else v) for v in outside), attr.name
                    assert not listed or attr.trouble((1,) * (attr.most + 1))
                if attr.kind == "str":
                    assert attr.trouble("x" * 10_000)
                if attr.choices:
                    assert attr.trouble("nonsense")


def test_every_trait_is_said_of_an_op() -> None:
    said = {t for t in Traits.__match_args__ if any(getattr(o.traits, t) for o in OPS.values())}
    assert said == set(Traits.__match_args__)
    for op in OPS.values():
        traits = op.traits
        assert not traits.loop or traits.tested != traits.counted, op
        assert not traits.stored or (traits.resident and traits.idle), op
        assert not (traits.idle and op.regions), op
