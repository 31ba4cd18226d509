"""Operators of com.microsoft and ai.onnx.ml beside NumPy and ONNX's own evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
from onnx_operators import ML, floats, model_of, rng, run, softmax

from graphc.errors import GraphError


def normal(x: Any, epsilon: float) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_a_mask(causal: int) -> None:
    x, w, b = floats(2, 5, 8), floats(8, 24), floats(24)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int32)
    (made, *_) = run("Attention", [x, w, b, mask], num_heads=2, unidirectional=causal)
    q, k, v = ((x @ w + b).reshape(2, 5, 3, 2, 4)[:, :, n].swapaxes(1, 2) for n in range(3))
    scores = q @ k.swapaxes(-1, -2) / 2 + np.where(mask, 0, -10000.0)[:, None, None]
    if causal:
        scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
    expected = (softmax(scores) @ v).swapaxes(1, 2).reshape(2, 5, 8)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_skip_layer_normalisation() -> None:
    x, skip, gamma, beta = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8)
    (made, *_) = run("SkipLayerNormalization", [x, skip, gamma, beta], epsilon=1e-5)
    np.testing.assert_allclose(made, normal(x + skip, 1e-5) * gamma + beta, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_one_scale_of_any_shape_serves_any_rank(shape: tuple[int, ...], rank: int) -> None:
    units = rng.integers(-100, 100, (3, 4)[:rank]).astype(np.int8)
    scale, zero = np.full(shape, 0.5, np.float32), np.full(shape[:0], 3, np.int8)
    (made,) = run("DequantizeLinear", [units, scale, zero], domain="")
    np.testing.assert_array_equal(made, (units - 3.0) * 0.5)
    (back,) = run("QuantizeLinear", [made, scale, zero], domain="")
    np.testing.assert_array_equal(back, units)


def test_quantised_sum() -> None:
    a, b = (rng.integers(0, 256, (3, 4)).astype(np.uint8) for _ in range(2))
    scales = [np.float32(v) for v in (0.1, 0.2, 0.3)]
    zeros = [np.uint8(v) for v in (120, 100, 110)]
    pairs = [*zip(map(np.asarray, scales), map(np.asarray, zeros))]
    (made,) = run("QLinearAdd", [a, *pairs[0], b, *pairs[1], *pairs[2]])
    real = (a - 120.0) * 0.1 + (b - 100.0) * 0.2
    expected = np.clip(np.rint(real / 0.3) + 110, 0, 255)
    assert np.abs(made - expected).max() <= 1  # where f32 and f64 are on both sides of a half


@pytest.mark.parametrize("turned", [0, 1])
def test_quantised_gemm(turned: int) -> None:
    random = np.random.default_rng(1)
    a = random.integers(0, 256, (5, 33)).astype("u1")
    b = random.integers(-128, 128, (7, 33) if turned else (33, 7)).astype("i1")
    scales = random.uniform(1e-3, 1e-2, 7).astype("f4")
    bias = random.integers(-500, 500, 7).astype("i4")
    given = [a, np.float32(0.02), np.uint8(120), b, scales, np.zeros(7, "i1"), bias]
    sums = (a.astype("i4") - 120) @ (b.T if turned else b).astype("i4") + bias
    (real,) = run("QGemm", given, transB=turned)
    np.testing.assert_allclose(real, sums * (np.float32(0.02) * scales), rtol=1e-6)
    (made,) = run("QGemm", [*given, np.float32(0.5), np.uint8(3)], transB=turned)
    expected = np.clip(np.rint(sums * (np.float32(0.02) * scales) / np.float32(0.5)) + 3, 0, 255)
    np.testing.assert_array_equal(made, expected.astype("u1"))


TREE = {
    "nodes_treeids": [0] * 5 + [1] * 3,
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 0, 2, 0, 0, 1, 0, 0],
    "nodes_modes": [["LEAF", "BRANCH_LEQ"][k in (0, 2, 5)] for k in range(8)],
    "nodes_values": [0.1, 0, -0.3, 0, 0, 0.2, 0, 0],
    "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0],
    "nodes_missing_value_tracks_true": [0] * 8,
}
LEAVES = {"treeids": [0, 0, 0, 1, 1], "nodeids": [1, 3, 4, 1, 2], "weights": [1.0, 2, 3, 4, 5]}


def leaves(prefix: str, ids: list[int]) -> dict[str, Any]:
    return {f"{prefix}_{key}": value for key, value in LEAVES.items()} | {f"{prefix}_ids": ids}


CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("Scaler", 1, {"offset": [0.1, 0.2, 0.3], "scale": [1.0, 2.0, 3.0]}),
    ("Normalizer", 1, {"norm": "L2"}),
    ("LinearRegressor", 1, {"coefficients": [0.1, 0.2, 0.3], "intercepts": [0.5], "targets": 1}),
    (
        "LinearClassifier", 2,
        {"coefficients": [*np.linspace(-1, 1, 9)], "intercepts": [0.1, 0.2, 0.3],
         "classlabels_ints": [5, 6, 7], "post_transform": "SOFTMAX"},
    ),
    (
        "SVMRegressor", 1,
        {"coefficients": [0.5, -0.7], "kernel_params": [0.5, 0.1, 3.0], "kernel_type": "RBF",
         "n_supports": 2, "rho": [0.3], "support_vectors": [0.1, 0.2, 0.3, -0.4, 0.5, -0.6]},
    ),
    ("TreeEnsembleRegressor", 1, {**TREE, **leaves("target", [0] * 5), "n_targets": 1}),
    (
        "TreeEnsembleClassifier", 2,
        {**TREE, **leaves("class", [0, 1, 2, 1, 2]), "classlabels_int64s": [4, 5, 6],
         "post_transform": "SOFTMAX"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("op", "results", "attributes"), CASES, ids=[c[0] for c in CASES])
def test_classical_models(op: str, results: int, attributes: dict[str, Any]) -> None:
    from onnx.reference import ReferenceEvaluator

    x = floats(7, 3)
    expected = ReferenceEvaluator(model_of(op, ML, [x], results, **attributes)).run(None, {"i0": x})
    for made, wanted in zip(run(op, [x], results, ML, **attributes), expected, strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


def test_support_vectors_take_rows_of_their_length() -> None:
    name, results, attributes = next(case for case in CASES if case[0] == "SVMRegressor")
    for features in (2, 5):
        with pytest.raises(GraphError, match=f"{features} features"):
            run(name, [floats(4, features)], results, ML, **attributes)


@pytest.mark.parametrize("transposed", [0, 1])
def test_products_whose_batches_are_transposed(transposed: int) -> None:
    a, b = floats(2, 6, 3, 4), floats(2, 6, 4, 5)
    moved = [np.moveaxis(x.swapaxes(-1, -2) if transposed else x, -2, 0) for x in (a, b)]
    how = dict.fromkeys(("transA", "transB"), transposed) | {"transBatchA": 1, "transBatchB": 1}
    (made,) = run("FusedMatMul", moved, alpha=0.5, **how)
    np.testing.assert_allclose(made, 0.5 * (a @ b), rtol=1e-5, atol=1e-5)


def test_products_with_an_activation_that_has_numbers() -> None:
    a, b, c = floats(3, 4), floats(4, 5), floats(5)
    y = a @ b + c
    elu = np.where(y < 0, 0.3 * np.expm1(np.minimum(y, 0)), y)
    expected = {
        "Elu": elu,
        "Selu": 1.5 * elu,
        "LeakyRelu": np.where(y < 0, 0.3 * y, y),
        "ThresholdedRelu": np.where(y > 0.3, y, 0),
        "HardSigmoid": np.clip(0.3 * y + 0.4, 0, 1),
    }
    numbers = {"activation_alpha": 0.3, "activation_beta": 0.4, "activation_gamma": 1.5}
    for name, values in expected.items():
        (made,) = run("FusedGemm", [a, b, c], activation=name, **numbers)
        np.testing.assert_allclose(made, values, rtol=1e-5, atol=1e-5)
    (made,) = run("FusedGemm", [a, b, c], activation="LeakyRelu")  # the operator's own number
    np.testing.assert_allclose(made, np.where(y < 0, 0.01 * y, y), rtol=1e-5, atol=1e-5)
    with pytest.raises(GraphError, match="no activation 'Odd'"):
        run("FusedGemm", [a, b, c], activation="Odd")
