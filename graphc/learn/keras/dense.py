"""Layers whose weights are a matrix or a table: Dense, EinsumDense, Embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.learn.keras.activations import activation
from graphc.learn.keras.table import (
    Function,
    Masked,
    Settings,
    Weights,
    as_real,
    expect,
    layers,
    one_of,
    rank_of,
    some,
)
from graphc.ops.record.value import functions as f


@layers("Dense", keeps_mask=True)
def dense(settings: Settings, weights: Weights) -> Function:
    kernel, *bias = some(settings, weights, 1, 2)
    if kernel.ndim != 2:
        raise ValueError(f"a kernel of {kernel.ndim} axes")
    after = activation(settings)

    def call(inputs: Any) -> Any:
        made = f.matmul(as_real(inputs, kernel.dtype), kernel)
        return after(f.add(made, bias[0]) if bias else made)

    return call


@layers("EinsumDense")
def einsum_dense(settings: Settings, weights: Weights) -> Function:
    kernel, *bias = some(settings, weights, 1, 2)
    equation, after = str(settings["equation"]), activation(settings)

    def call(inputs: Any) -> Any:
        made = f.einsum(equation, as_real(inputs, kernel.dtype), kernel)
        return after(f.add(made, bias[0]) if bias else made)

    return call


@layers("Embedding")
def embedding(settings: Settings, weights: Weights) -> Function:
    """Rows of a table; where 0 stands for no word, steps with it do not count."""
    (table,) = some(settings, weights, 1, 1)
    masks = bool(settings.get("mask_zero"))

    def call(inputs: Any) -> Any:
        kind = np.dtype(inputs.dtype).kind
        places = inputs if kind in "iu" else f.astype(inputs, np.int32)
        made = f.take(table, places, axis=0)
        return Masked(made, f.not_equal(inputs, 0)) if masks else made

    return call


@layers("Masking")
def masking(settings: Settings, weights: Weights) -> Function:
    left_out = settings.get("mask_value", 0.0)

    def call(inputs: Any) -> Any:
        kept = f.any(f.not_equal(inputs, left_out), axis=-1)
        made = f.where(f.expand_dims(kept, -1), inputs, f.zeros_like(inputs))
        return Masked(made, kept)

    return call


@layers("CategoryEncoding")
def category_encoding(settings: Settings, weights: Weights) -> Function:
    expect(settings, sparse=False)
    mode = one_of(settings, "output_mode", ("one_hot", "multi_hot", "count"), "multi_hot")
    count = settings["num_tokens"]

    def call(inputs: Any) -> Any:
        rank = rank_of(inputs)
        if mode == "one_hot" and rank > 1 and inputs.shape[-1] == 1:
            inputs = f.squeeze(inputs, -1)
        made = f.one_hot(f.astype(inputs, np.int32), count, np.float32)
        if mode == "one_hot":
            return made
        return f.max(made, axis=-2) if mode == "multi_hot" else f.sum(made, axis=min(rank - 1, 1))

    return call


@layers("Discretization")
def discretization(settings: Settings, weights: Weights) -> Function:
    """How many boundaries are no larger than each element."""
    expect(settings, output_mode="int", sparse=False)
    _ = settings.get("num_bins"), settings.get("epsilon")  # of the search for boundaries
    edges = np.asarray(settings["bin_boundaries"], np.float32)
    if edges.ndim != 1 or (np.diff(edges) < 0).any():
        raise ValueError("boundaries that do not rise")
    return lambda inputs: f.astype(f.searchsorted(edges, inputs, side="right"), np.int32)
