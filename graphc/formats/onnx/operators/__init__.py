"""The operators of ONNX by family; importing this package fills the table."""

from graphc.formats.onnx.operators import (
    control,
    elementwise,
    images,
    indexing,
    layers,
    machine_learning,
    microsoft,
    products,
    quantised,
    random,
    recurrent,
    reductions,
    sequences,
    shapes,
    signal,
    training,
)

__all__ = [
    "control",
    "elementwise",
    "images",
    "indexing",
    "layers",
    "machine_learning",
    "microsoft",
    "products",
    "quantised",
    "random",
    "recurrent",
    "reductions",
    "sequences",
    "shapes",
    "signal",
    "training",
]
