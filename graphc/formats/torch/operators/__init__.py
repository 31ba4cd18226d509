"""The operators of PyTorch by family; importing this package fills the table."""

from graphc.formats.torch.operators import (
    backward,
    control,
    elementwise,
    indexing,
    layers,
    products,
    random,
    recurrent,
    reductions,
    rows,
    shapes,
    spectral,
)

__all__ = [
    "backward",
    "control",
    "elementwise",
    "indexing",
    "layers",
    "products",
    "random",
    "recurrent",
    "reductions",
    "rows",
    "shapes",
    "spectral",
]
