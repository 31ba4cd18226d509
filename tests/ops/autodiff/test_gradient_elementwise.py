"""Gradient rules of element-wise ops, element by element: differences that have settled, a complex
step where the op takes complex numbers, and the values at kinks, ties and poles."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gradient_harness import FIVE_POINTS, check_region, gradient_graph, is_float, noise, region_of

from graphc.errors import TypeRuleError
from graphc.ir.graph import Builder, Graph
from graphc.ir.op import OPS, Op, Sample, Scalar
from graphc.ir.types import F64, tensor
from graphc.ops.control.control import param_node
from graphc.ops.record.value import Trace, tracing
from graphc.ops.record.value import functions as f
from graphc.ops.reference.interpreter import interpret

SMOOTH = [op for _, op in sorted(OPS.items()) if isinstance(op.lower, Scalar) and op.differentiable]
STEPS = (3e-2, 3.1e-3, 2.9e-4)  # odd ratios: jumps of a step function do not agree by chance
WIDE = {"f16": "f64", "bf16": "f64", "f32": "f64", "c64": "c128"}  # what `cast` casts to
MODERATE = 1e3  # beyond, the steps are too small to be seen
FEWEST = 8  # elements that must have been compared per op


def samples_of(op: Op) -> list[Sample]:
    """One sample per shape, kind and attributes: floats in f64, off kinks, all of one shape."""
    found: dict[str, Sample] = {}
    rng = np.random.default_rng(7)
    assert op.samples is not None
    for sample in op.samples():
        operands = np.broadcast_arrays(*sample.operands) if sample.good else []
        kinds = [a.dtype.kind for a in operands]
        if "f" in kinds or "c" in kinds:
            attrs = {k: WIDE.get(v, v) for k, v in sample.attrs.items()}
            key = str(([a.shape for a in operands], kinds, attrs))
            found.setdefault(key, Sample(tuple(off_kink(a, rng) for a in operands), attrs))
    return list(found.values())


def off_kink(array: Any, rng: Any) -> Any:
    if array.dtype.kind not in "fc" and array.dtype.name != "bfloat16":
        return array
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return wide + rng.uniform(0.01, 0.05, wide.shape)


def paired(results: list[Any], seeds: list[Any]) -> Any:
    """Element by element, the real inner product of results and cotangents."""
    return sum((np.conj(s) * y).real for y, s in zip(results, seeds, strict=True))


def slopes(region: Graph, operands: list[Any], k: int, way: complex, seeds: list[Any]) -> Any:
    """Derivatives along operand k and where they have settled: two step sizes agree."""
    size = np.abs(paired(interpret(region, operands, wide=True), seeds))
    made = []
    for step in STEPS:
        total = 0.0
        for place, weight in FIVE_POINTS:
            moved = [a + place * step * way if j == k else a for j, a in enumerate(operands)]
            total = total + weight / step * paired(interpret(region, moved, wide=True), seeds)
        made.append(total)
    moderate = np.all([np.abs(a) < MODERATE for a in operands], axis=0)
    best, settled = made[-1], np.zeros(np.shape(size), bool)
    for coarse, fine in pairwise(made):
        close = np.abs(coarse - fine) <= 1e-7 * np.abs(fine) + 1e-9 * size
        best, settled = np.where(close & ~settled, fine, best), settled | close
    return best, settled & moderate, size


@np.errstate(all="ignore")
def compared(region: Graph, operands: list[Any], seeds: list[Any], graph: Graph) -> int:
    """Compare every gradient with differences; returns how many elements were."""
    count = 0
    found = interpret(graph, [*operands, *seeds], wide=True)
    wrt = [k for k, p in enumerate(region.params) if is_float(p)]
    for k, gradient in zip(wrt, found, strict=True):
        for way in (1.0, 1j) if operands[k].dtype.kind == "c" else (1.0,):
            want, settled, size = slopes(region, operands, k, way, seeds)
            got = (np.conj(gradient) * way).real
            wrong = ~(np.abs(got - want) <= 1e-6 * np.abs(want) + 1e-8 * size + 1e-11) & settled
            assert not wrong.any(), (
                f"operand {k} of {region.name} at {[a[wrong] for a in operands]}: "
                f"{got[wrong]} for {want[wrong]}"
            )
            count += int(np.sum(settled))
    return count


def derived(region: Graph) -> Graph:
    return gradient_graph(region, tuple(k for k, p in enumerate(region.params) if is_float(p)))


def seeds_of(region: Graph, rng: Any) -> list[Any]:
    kinds = (r.type for r in region.results)
    return [noise(rng, np.empty(t.dims, t.dtype.numpy)) for t in kinds]  # type: ignore[union-attr]


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_first_and_second_derivatives_equal_differences(op: Op) -> None:
    rng = np.random.default_rng(0)
    counts = [0, 0]
    for sample in samples_of(op):
        operands = [np.asarray(a) for a in sample.operands]
        region = region_of(op, sample, operands)
        if not region.results:
            continue
        for order in (0, 1):
            seeds = seeds_of(region, rng)
            graph = derived(region)
            counts[order] += compared(region, operands, seeds, graph)
            region, operands = graph, [*operands, *seeds]
    assert min(counts) >= FEWEST


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_gradients_have_the_dtype_of_their_operands(op: Op) -> None:
    """For every sample as it is: f16, bf16, f32 and complex, 0-d and empty."""
    assert op.samples is not None
    seen = set()
    for sample in (s for s in op.samples() if s.good):
        operands = [np.asarray(a) for a in sample.operands]
        region = region_of(op, sample, operands)
        wrt = [p for p in region.params if is_float(p)]
        key = (*region.signature[0], str(sample.attrs))
        if key in seen or not wrt or not region.results:
            continue
        seen.add(key)
        graph = derived(region)
        assert [r.type for r in graph.results] == [p.type for p in wrt]
    assert seen


SHAPES = [((3, 4), (4,)), ((2, 1), (1, 5)), ((), (6,)), ((2, 1, 3), (2, 1)), ((4, 1), (4, 3))]
BINARY = [op for op in SMOOTH if len(op.samples()[0].operands) == 2]  # type: ignore[misc]


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_gradients_are_summed_over_what_was_broadcast(op: Op) -> None:
    rng = np.random.default_rng(2)
    for shapes in (*SHAPES, *(pair[::-1] for pair in SHAPES)):
        # The operands stay apart, and no quotient of theirs is near an integer.
        ranges = ((0.46, 0.68), (0.35, 0.44))
        x, y = (rng.uniform(*r, shape) for r, shape in zip(ranges, shapes, strict=True))
        region = region_of(op, Sample((x, y)), [x, y])
        graph = check_region(region, [x, y], rng)
        assert graph is not None
        assert [r.type.dims for r in graph.results] == [*shapes]  # type: ignore[union-attr]


NOT_ANALYTIC = {"abs", "sign", "real", "imag", "conj", "angle", "cast"}
ANALYTIC = [op for op in SMOOTH if "c128" in op.dtypes and op.name not in NOT_ANALYTIC]


@pytest.mark.parametrize("op", ANALYTIC, ids=lambda op: op.name)
def test_analytic_functions_agree_with_a_complex_step(op: Op) -> None:
    """Im f(x + ih) / h has no cancellation: the rule is right to the last digits."""
    rng = np.random.default_rng(1)
    assert op.samples is not None
    operands = [rng.uniform(0.2, 0.9, 40) for _ in op.samples()[0].operands]
    if op.name == "acosh":  # which is real from 1 on
        operands = [x + 1 for x in operands]
    region = region_of(op, Sample(tuple(operands)), operands)
    found = interpret(derived(region), [*operands, np.ones(40)])
    for k, gradient in enumerate(found):
        moved = [x + (1e-30j if j == k else 0j) for j, x in enumerate(operands)]
        stepped = interpret(region_of(op, Sample(tuple(moved)), moved), moved)[0]
        np.testing.assert_allclose(gradient, stepped.imag / 1e-30, rtol=2e-13)


# --------------------------------------------------------------------------- kinks, ties and poles


def partials(function: Any, *points: float, order: int = 1) -> list[float]:
    """The partial derivatives of a function of numbers in f64, by the rules; those of a higher
    order are of the first of the order before."""
    region = written(function, len(points))
    for _ in range(order):
        region = derived(Graph("first", region.params, region.nodes, region.results[:1]))
    ones = [np.ones(())] * (len(region.params) - len(points))
    return [float(g) for g in interpret(region, [*map(np.asarray, points), *ones])]


def written(function: Any, count: int) -> Graph:
    params = tuple(param_node(k, tensor(F64, ())) for k in range(count))
    trace = Trace(Builder(count))
    with tracing(trace):
        made = function(*map(trace.wrap, params))
    return Graph("written", params, trace.builder.nodes, (made.node,))


INF = math.inf
AT_EDGES: list[tuple[Any, tuple[float, ...], list[float]]] = [
    (f.sqrt, (0.0,), [INF]),
    (f.cbrt, (0.0,), [INF]),
    (f.log, (0.0,), [INF]),
    (f.absolute, (0.0,), [0.0]),
    (f.relu, (0.0,), [0.0]),
    (f.relu6, (6.0,), [0.0]),
    (f.hypot, (0.0, 0.0), [0.0, 0.0]),
    (f.arctan2, (0.0, 0.0), [0.0, 0.0]),
    (f.copysign, (2.0, -3.0), [-1.0, 0.0]),
    (f.maximum, (1.5, 1.5), [0.5, 0.5]),
    (f.minimum, (1.5, 1.5), [0.5, 0.5]),
    (f.fmax, (1.5, math.nan), [1.0, 0.0]),
    (f.fmin, (math.nan, 1.5), [0.0, 1.0]),
    (f.logaddexp, (-INF, -INF), [0.5, 0.5]),
    (f.logaddexp, (INF, 1.0), [1.0, 0.0]),
    (f.power, (0.0, 0.0), [0.0, 0.0]),
    (f.power, (0.0, 1.0), [1.0, 0.0]),
    (f.power, (0.0, 2.0), [0.0, 0.0]),
    (f.power, (-2.0, 3.0), [12.0, 0.0]),
    (f.power, (-2.0, -1.0), [-0.25, 0.0]),
    (f.elu, (0.0,), [1.0]),
    (f.gelu, (300.0,), [1.0]),
    (lambda x: f.gelu(x, tanh=True), (1e200,), [1.0]),
    (lambda x: f.gelu(x, tanh=True), (-1e200,), [0.0]),
    (f.silu, (-800.0,), [0.0]),
    (f.mish, (800.0,), [1.0]),
    (f.elu, (800.0,), [1.0]),
    (lambda x: f.where(x > 0, f.log(f.where(x > 0, x, 1.0)), 0.0), (-1.0,), [0.0]),
    (lambda x: f.astype(f.astype(x, "i32"), "f64"), (1.5,), [0.0]),
    (lambda x: f.sum(f.floor(x) + f.rint(x) + f.sign(x) + f.floor_divide(x, 2.0)), (1.5,), [0.0]),
]


@pytest.mark.parametrize("case", AT_EDGES, ids=lambda case: f"{case[0].__name__}{case[1]}")
def test_derivatives_at_kinks_ties_and_poles(case: Any) -> None:
    function, points, want = case
    np.testing.assert_array_equal(partials(function, *points), want)


def test_powers_of_zero_have_all_their_derivatives() -> None:
    for exponent in range(5):
        for order in (1, 2, 3):
            got = partials(lambda x, n=exponent: f.power(x, np.float64(n)), 0.0, order=order)
            want = math.factorial(exponent) if order == exponent else 0
            assert got[0] == want, (exponent, order)


def test_sinc_is_smooth_at_zero() -> None:
    """The derivatives of sin(pi x) / (pi x) at 0 alternate with 0; order 2k gives (-1)**k pi**2k /
    (2k + 1)."""
    for order, want in ((1, 0.0), (2, -(math.pi**2) / 3), (3, 0.0), (4, math.pi**4 / 5)):
        got = partials(f.sinc, 0.0, order=order)[0]
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-300)
    for x in (1e-6, 0.3, 0.4999, 0.5001):
        want = (math.cos(math.pi * x) - math.sin(math.pi * x) / (math.pi * x)) / x
        np.testing.assert_allclose(partials(f.sinc, x)[0], want, rtol=1e-13 + 1e-15 / x**2)


def test_polygamma_against_known_values() -> None:
    apery = 1.2020569031595942
    for n, x, want in (
        *((1, 1.0, math.pi**2 / 6), (2, 1.0, -2 * apery), (3, 1.0, math.pi**4 / 15)),
        *((1, 0.5, math.pi**2 / 2), (1, -0.5, math.pi**2 / 2 + 4), (2, 0.5, -14 * apery)),
    ):
        np.testing.assert_allclose(f.polygamma(n, np.float64(x)), want, rtol=2e-14)
    lgamma = [partials(f.lgamma, 2.5, order=k)[0] for k in (1, 2, 3)]
    want = [f.polygamma(k, np.float64(2.5)) for k in (0, 1, 2)]
    np.testing.assert_allclose(lgamma, want, rtol=1e-13)


def test_polygamma_refuses_an_order_it_does_not_know() -> None:
    for order in (-1, 21):
        with pytest.raises(TypeRuleError, match="order"):
            f.polygamma(order, np.ones(2))


def test_a_unit_number_keeps_its_size() -> None:
    """The derivative of z / |z| has no part along z, and none at all of a real number."""
    z = np.array([3 + 4j, -1j, 0])
    region = region_of(OPS["sign"], Sample((z,)), [z])
    (along,) = interpret(derived(region), [z, z])
    (across,) = interpret(derived(region), [z, 1j * z])
    np.testing.assert_allclose(along, 0, atol=1e-15)
    np.testing.assert_allclose(across, [1j * (3 + 4j) / 5, 1, 0], atol=1e-15)
