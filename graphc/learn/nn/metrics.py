"""Figures that say how good predictions are."""

from __future__ import annotations

from typing import Any

from graphc.ops.value import functions as f


def accuracy(logits: Any, labels: Any, axis: int = -1) -> Any:
    """The share of rows whose largest logit is at the integer label; f32[]."""
    return f.mean(f.astype(f.equal(f.argmax(logits, axis), labels), "f32"))


def binary_accuracy(predictions: Any, labels: Any, threshold: float = 0.5) -> Any:
    """The share of predictions on the right side of `threshold` (0 for logits); f32[]."""
    chosen = f.equal(f.greater(predictions, threshold), f.greater(labels, 0.5))
    return f.mean(f.astype(chosen, "f32"))
