"""ai.onnx.ml: support vector machines."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.onnx.operators.machine_learning import (
    Labels,
    classified,
    floats,
    matrix,
    transformed,
)
from graphc.formats.onnx.table import ML, operator
from graphc.frontend.transforms.control import while_loop
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]
_WIDEST = 32  # features whose distances are written out one by one


def _kernel(x: Any, vectors: Array, kind: str, parameters: Any) -> Any:
    """The kernel of each row with each support vector."""
    gamma, offset, degree = (*map(float, parameters), 0.0, 0.0, 3.0)[:3]
    if kind == "RBF":
        return f.exp(f.multiply(_squares(x, vectors), np.float32(-gamma)))
    dot = f.matmul(x, np.ascontiguousarray(vectors.T))
    if kind == "LINEAR":
        return dot
    line = f.add(f.multiply(dot, np.float32(gamma)), np.float32(offset))
    refuse(kind in ("POLY", "SIGMOID"), f"no kernel {kind!r}")
    return f.power(line, np.float32(degree)) if kind == "POLY" else f.tanh(line)


def _squares(x: Any, vectors: Array) -> Any:
    """The squares of how far each row is from each support vector, [rows, vectors].

    Vectors lie side by side, which many of them take in one step; x.x - 2 x.v + v.v would cancel.
    """
    turned = np.ascontiguousarray(vectors.T)
    refuse(x.shape[1] == len(turned), f"{x.shape[1]} features, where vectors have {len(turned)}")
    if not 0 < len(turned) <= _WIDEST:
        apart = f.subtract(f.expand_dims(x, 2), turned)
        return f.sum(f.multiply(apart, apart), axis=1)
    made: Any = None
    for k, row in enumerate(turned):
        apart = f.subtract(f.getitem(x, (slice(None), slice(k, k + 1))), row)
        square = f.multiply(apart, apart)
        made = square if made is None else f.add(made, square)
    return made


@operator("SVMRegressor", domain=ML)
def svm_regressor(
    x: Any,
    *,
    coefficients: Any = (),
    kernel_params: Any = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Any = (0.0,),
    support_vectors: Any = (),
) -> Any:
    wide = f.astype(matrix(x), np.float32)
    if n_supports:
        vectors = floats(support_vectors).reshape(n_supports, -1)
        seen = _kernel(wide, vectors, kernel_type, kernel_params)
        made = f.matmul(seen, floats(coefficients).reshape(-1, 1))
    else:
        made = f.matmul(wide, floats(coefficients).reshape(-1, 1))
    made = f.add(made, floats(rho[:1]))
    if one_class:
        return f.where(f.greater(made, 0), np.float32(1), np.float32(-1))
    return transformed(made, post_transform)


@operator("SVMClassifier", domain=ML)
def svm_classifier(
    x: Any,
    *,
    classlabels_ints: Any = (),
    classlabels_strings: Any = (),
    coefficients: Any,
    kernel_params: Any = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Any = (),
    prob_b: Any = (),
    rho: Any = (),
    support_vectors: Any = (),
    vectors_per_class: Any = (),
) -> Any:
    labels = Labels(classlabels_ints, classlabels_strings)
    wide = f.astype(matrix(x), np.float32)
    if not len(vectors_per_class):  # one weight per feature: a linear model
        weights = floats(coefficients).reshape(-1, wide.shape[1])
        scores = f.add(f.matmul(wide, np.ascontiguousarray(weights.T)), floats(rho[:1]))
        return classified(scores, labels, post_transform)
    counts = [int(n) for n in vectors_per_class]
    refuse(len(counts) == len(labels) >= 2 and min(counts) >= 0, f"{len(counts)} classes")
    vectors = floats(support_vectors).reshape(sum(counts), -1)
    seen = _kernel(wide, vectors, kernel_type, kernel_params)
    scores = _one_against_one(seen, floats(coefficients), counts, floats(rho))
    if len(prob_a):
        return _by_probability(scores, labels, floats(prob_a), floats(prob_b), post_transform)
    return _by_votes(scores, labels, post_transform)


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _one_against_one(seen: Any, coefficients: Array, counts: list[int], rho: Array) -> Any:
    """A score for each pair of classes, positive for the first: [rows, pairs].

    A support vector of class i has one coefficient for each other class (libsvm's layout).
    """
    starts = np.cumsum([0, *counts])
    given = coefficients.reshape(len(counts) - 1, -1)
    pairs = _pairs(len(counts))
    weights = np.zeros((given.shape[1], len(pairs)), np.float32)
    refuse(given.shape[1] == starts[-1] and len(rho) == len(pairs), "coefficients of another size")
    for k, (i, j) in enumerate(pairs):
        first, second = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        weights[first, k], weights[second, k] = given[j - 1, first], given[i, second]
    return f.add(f.matmul(seen, weights), rho)


def _by_votes(scores: Any, labels: Labels, post: str) -> Any:
    """The class that wins most pairs; the scores are those of the pairs."""
    shown = f.concatenate([f.negative(scores), scores], 1) if len(labels) == 2 else scores
    return _winner(scores, labels), transformed(shown, post)


def _winner(scores: Any, labels: Labels) -> Any:
    """The label of the class that wins most pairs, the first of several."""
    first, second = np.array(_pairs(len(labels))).T
    wins = f.where(f.greater(scores, 0), first, second)
    votes = f.sum(f.equal(f.expand_dims(wins, -1), np.arange(len(labels))), axis=1)
    return labels.at(f.argmax(votes, axis=1))


def _by_probability(scores: Any, labels: Labels, a: Array, b: Array, post: str) -> Any:
    """Platt's probabilities of the pairs, coupled to those of the classes; votes name the class.

    Wu, Lin and Weng, Probability Estimates for Multi-class Classification by Pairwise Coupling
    (JMLR 5, 2004), method 2: p minimises the sum of (r_ji p_i - r_ij p_j)^2, by the fixed-point
    iteration of its section 4, in f64.
    """
    line = f.add(f.multiply(scores, a), b)
    pair = f.clip(f.sigmoid(f.negative(line)), np.float32(1e-7), np.float32(1 - 1e-7))
    made = f.astype(_coupled(f.astype(pair, np.float64), len(labels)), np.float32)
    return _winner(scores, labels), transformed(made, post)


def _coupled(pair: Any, count: int) -> Any:
    """Probabilities of classes from those of pairs: [rows, pairs] -> [rows, classes]."""
    columns: list[list[Any]] = [[None] * count for _ in range(count)]
    for k, (i, j) in enumerate(_pairs(count)):
        columns[i][j] = f.getitem(pair, (slice(None), k))
        columns[j][i] = f.subtract(1, columns[i][j])
    zero = f.multiply(f.getitem(pair, (slice(None), 0)), 0)
    r = f.stack([f.stack([c if c is not None else zero for c in row], 1) for row in columns], 1)
    turned = f.transpose(r, (0, 2, 1))
    diagonal = np.eye(count)
    squares = f.sum(f.multiply(turned, turned), axis=2, keepdims=True)
    q = f.add(f.multiply(diagonal, squares), f.negative(f.multiply(turned, r)))
    return _fixed_point(q, count)


def _fixed_point(q: Any, count: int) -> Any:
    """p > 0 with p summing to 1 that minimises p' Q p, one coordinate after another.

    A row is done when no gradient is further than 0.005 / classes from their mean (libsvm's bound).
    """

    def gradients(p: Any) -> tuple[Any, Any]:
        qp = f.squeeze(f.matmul(q, f.expand_dims(p, -1)), -1)
        return qp, f.sum(f.multiply(p, qp), axis=1, keepdims=True)

    def sweep(state: Any) -> Any:
        turn, p, open_rows = state
        new = p
        for t in range(count):
            qp, mean = gradients(new)
            own, corner = (f.getitem(v, (slice(None), slice(t, t + 1))) for v in (qp, corners))
            step = f.divide(f.subtract(mean, own), corner)
            new = f.divide(f.add(new, f.multiply(step, np.eye(count)[t])), f.add(1, step))
        p = f.where(open_rows, new, p)
        return f.add(turn, 1), p, is_open(p)

    def is_open(p: Any) -> Any:
        qp, mean = gradients(p)
        distance = f.max(f.abs(f.subtract(qp, mean)), axis=1, keepdims=True)
        return f.greater_equal(distance, 0.005 / count)

    corners = f.sum(f.multiply(q, np.eye(count)), axis=2)
    start = f.broadcast_to(np.full(count, 1 / count), (q.shape[0], count))
    turns = max(100, count)
    _, made, _ = while_loop(
        lambda state: f.logical_and(f.less(state[0], turns), f.any(state[2])),
        sweep,
        (np.int64(0), start, is_open(start)),
    )
    return made
