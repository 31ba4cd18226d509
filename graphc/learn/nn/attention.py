"""Multi-head attention around gc.attention."""

from __future__ import annotations

from typing import Any

from graphc.base.record import record
from graphc.learn.nn.init import Initialiser
from graphc.learn.nn.layer import Layer, parameter, require_sizes
from graphc.learn.nn.layers import GLOROT, Dense
from graphc.ops.random import random
from graphc.ops.record.families import require
from graphc.ops.record.value import as_value
from graphc.ops.record.value import functions as f

PARTS = ("query", "key", "value", "output")


@record(frozen=True)
class MultiHeadAttention(Layer):
    """Attention of x[batch, length, width] to itself (Vaswani et al., 2017).

    The parameters are four dense layers: query, key, value and output.  With `shared_heads` there
    are only so many heads of keys and values, each for several heads of queries (Ainslie et al.,
    2023).  `attend` takes another sequence to look at, and a mask.
    """

    width: int
    heads: int
    causal: bool = False
    bias: bool = True
    shared_heads: int | None = None
    weights: Initialiser = GLOROT

    def __post_init__(self) -> None:
        require_sizes(self, "width", "heads")

    def init(self, key: Any, dtype: Any = "f32") -> dict[str, Any]:
        keys = [random.fold_in(key, k) for k in range(len(PARTS))]
        layers = zip(PARTS, self._layers(), keys)
        return {name: layer.init(own, dtype) for name, layer, own in layers}

    def forward(self, params: Any, x: Any) -> Any:
        return self.attend(params, x, x)

    def attend(self, params: Any, x: Any, context: Any, mask: Any = None) -> Any:
        """x[batch, length, width] looks at context[batch, other length, width].

        The mask is that of gc.attention and broadcasts to [batch, heads, length, other length].
        """
        query, key, value, output = self._layers()
        given = [parameter(params, name, self) for name in PARTS]
        q = self._split(query(given[0], x), self.heads)
        k = self._split(key(given[1], context), self._inner_heads())
        v = self._split(value(given[2], context), self._inner_heads())
        made = f.swapaxes(f.attention(q, k, v, mask, self.causal), -2, -3)
        return output(given[3], f.reshape(made, as_value(x).shape))

    def _inner_heads(self) -> int:
        return self.heads if self.shared_heads is None else self.shared_heads

    def _layers(self) -> tuple[Dense, Dense, Dense, Dense]:
        inner = self._inner_heads()
        fits = self.heads > 0 and self.width % self.heads == 0 == self.heads % max(inner, 1)
        require(fits and inner > 0, f"{self!r}: the heads do not divide the width evenly")
        whole = Dense(self.width, self.width, self.bias, self.weights)
        part = Dense(self.width, self.width // self.heads * inner, self.bias, self.weights)
        return whole, part, part, whole

    def _split(self, x: Any, heads: int) -> Any:
        """[batch, length, width] to [batch, heads, length, width of a head]."""
        x = as_value(x)
        return f.swapaxes(f.reshape(x, (*x.shape[:-1], heads, self.width // self.heads)), -2, -3)
