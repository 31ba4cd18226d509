"""Figures that say how good predictions are."""

from __future__ import annotations

from typing import Any

from graphc.ops.record.dims import shape_of
from graphc.ops.record.families import require
from graphc.ops.record.value import functions as f


def accuracy(logits: Any, labels: Any, axis: int = -1) -> Any:
    """The share of rows whose largest logit is at the integer label; f32[]."""
    return _share(f.argmax(logits, axis), labels)


def binary_accuracy(predictions: Any, labels: Any, threshold: float = 0.5) -> Any:
    """The share of predictions on the right side of `threshold` (0 for logits); f32[]."""
    return _share(f.greater(predictions, threshold), f.greater(labels, 0.5))


def _share(predicted: Any, labels: Any) -> Any:
    """Broadcasting would compare every row with every label."""
    require(
        shape_of(predicted) == shape_of(labels),
        f"accuracy: predictions of shape {list(shape_of(predicted))} and labels of shape "
        f"{list(shape_of(labels))}",
        hint="labels are integers, one per row",
    )
    return f.mean(f.astype(f.equal(predicted, labels), "f32"))
