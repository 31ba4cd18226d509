"""A small model, what it learns from, and all bits of it."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc as gc
from graphc.frontend.trace.tree import flatten

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(90, 6)).astype("f4")
Y = np.tanh(X @ DRAW.normal(size=(6, 2)).astype("f4"))
LABELS = (Y[:, 0] > Y[:, 1]).astype("i4")


def network(outputs: int = 2, dropout: float = 0.0) -> Any:
    return gc.nn.Sequential(
        gc.nn.Dense(6, 8), gc.nn.relu, gc.nn.Dropout(dropout), gc.nn.Dense(8, outputs)
    )


def regression(optimizer: Any = None, **options: Any) -> gc.Model:
    return gc.Model(
        network(dropout=options.pop("dropout", 0.0)),
        loss=gc.nn.mse,
        optimizer=optimizer or gc.optim.adam(1e-2),
        **options,
    )


def bits(model: gc.Model) -> bytes:
    leaves, _ = flatten((model.params, model.optimizer_state, model.state, model.key, model.step))
    return b"".join(np.asarray(leaf).tobytes() for leaf in leaves)
