"""The rules, by family; importing them fills the tables."""

from graphc.formats.onnx.export.rules import (  # noqa: F401
    control,
    elementwise,
    indexing,
    layers,
    reductions,
    shapes,
)
