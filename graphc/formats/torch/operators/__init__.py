"""The operators of PyTorch by family; importing this package fills the table."""

from graphc.formats.torch.operators import (
    backward,
    control,
    elementwise,
    encoders,
    factors,
    groups,
    indexing,
    layers,
    losses,
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
    "encoders",
    "factors",
    "groups",
    "indexing",
    "layers",
    "losses",
    "products",
    "random",
    "recurrent",
    "reductions",
    "rows",
    "shapes",
    "spectral",
]
