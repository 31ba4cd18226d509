"""`gc.summary`: numbers, histograms, images and texts of a model, recorded while it runs."""

from __future__ import annotations

from graphc.base.refusing import refuse_all
from graphc.frontend.summaries.recorder import (
    Recorder,
    graph,
    histogram,
    image,
    paused,
    scalar,
    text,
    to,
)
from graphc.frontend.summaries.tensorboard import TensorBoard
from graphc.frontend.summaries.writers import CSV, JSONL

__all__ = [
    "CSV",
    "JSONL",
    "Recorder",
    "TensorBoard",
    "graph",
    "histogram",
    "image",
    "paused",
    "scalar",
    "text",
    "to",
]

refuse_all(__all__, globals())
