"""A rule for each op; importing this fills the table."""

from graphc.formats.stablehlo.rules import control, elements, order, products, reductions, shapes

__all__ = ["control", "elements", "order", "products", "reductions", "shapes"]
