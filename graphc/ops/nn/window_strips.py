"""Extents of a depthwise convolution of images, of which a strip of rows is summed at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from graphc.base.record import record

if TYPE_CHECKING:
    from graphc.ops.nn.conv import Ints


@record(frozen=True)
class WindowStrips:
    """Extents of x, and along both axes of space those of the others; `rows` rows of results are a
    strip."""

    x: Ints
    window: Ints
    out: Ints
    stride: Ints
    dilation: Ints

    AXES = slice(None)  # of the weights: those of a window

    @classmethod
    def of(cls, node: Any) -> Self:
        x, w = (n.type.dims for n in node.inputs)
        out, stride, dilation = (node.attrs[k] for k in ("out", "stride", "dilation"))
        return cls(x, w[cls.AXES], out, stride, dilation)

    def span(self, results: int, axis: int) -> int:
        """Rows or columns of x that neighbouring results read."""
        return (results - 1) * self.stride[axis] + (self.window[axis] - 1) * self.dilation[axis] + 1

    @property
    def rows(self) -> int:
        """Rows of results in a strip."""
        raise NotImplementedError

    @property
    def lines(self) -> int:
        """Rows of x that a strip reads."""
        return self.span(self.rows, 0)

    @property
    def strips(self) -> int:
        return -(-self.out[0] // self.rows)
