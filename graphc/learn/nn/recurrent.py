"""LSTM and GRU over time, as a scan whose input projections are one product beforehand.

    gates(t) = x[t] @ input + bias    for all t at once         [time, batch, gates * hidden]
    carry(t) = cell(carry(t - 1), gates(t) + h(t - 1) @ recurrent)

Weights are held as Keras does, [from, gates * hidden], with the gates in PyTorch's order;
`gc.nn.layouts` converts from and to both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from graphc.base.record import record
from graphc.frontend.trace.hooks import seen
from graphc.frontend.transforms.control import scan
from graphc.ir.types import Dim
from graphc.ir.types import dtype as as_dtype
from graphc.learn.nn.init import Initialiser, orthogonal
from graphc.learn.nn.layer import Layer, parameter, product, require_sizes
from graphc.learn.nn.layers import GLOROT
from graphc.ops.random import random
from graphc.ops.record.families import require
from graphc.ops.record.value import as_value, element_of
from graphc.ops.record.value import functions as f

ORTHOGONAL = orthogonal()


@record(frozen=True)
class Recurrent(Layer, ABC):
    """What LSTM and GRU share. x is [batch, time, inputs], or [time, batch, inputs] (`time_first`).

    sequences   the result is h of all steps, [batch, time, hidden], else of the last one only
    unroll      the steps are a Python loop instead of a scan: the same numbers, a longer graph
    """

    inputs: int
    hidden: int
    sequences: bool = True
    time_first: bool = False
    unroll: bool = False
    weights: Initialiser = GLOROT
    recurrent_weights: Initialiser = ORTHOGONAL

    gates = 0

    def __post_init__(self) -> None:
        require_sizes(self, "inputs", "hidden")

    def init(self, key: Any, dtype: Any = "f32") -> dict[str, Any]:
        width, element = self.gates * self.hidden, as_dtype(dtype)
        first, second = (random.fold_in(key, k) for k in range(2))
        return {
            "input": seen(self.weights)(first, (self.inputs, width), element),
            "recurrent": seen(self.recurrent_weights)(second, (self.hidden, width), element),
            "bias": self._first_bias(element),
        }

    def forward(self, params: Any, x: Any) -> Any:
        if self.sequences:
            return self.run(params, x)[0]
        return self.output(self._over_time(params, x, None, lambda carry: None)[0])

    def run(self, params: Any, x: Any, carry: Any = None) -> tuple[Any, Any]:
        """(h of all steps, last carry) from a first carry (zeros)."""
        carry, ys = self._over_time(params, x, carry, self.output)
        return (ys if self.time_first else f.swapaxes(ys, 0, 1)), carry

    def step(self, params: Any, carry: Any, x: Any) -> tuple[Any, Any]:
        """(carry, h) after one more step, whose input x is [batch, inputs]."""
        carry = self._cell(self._held(params), carry, self._projected(params, x))
        return carry, self.output(carry)

    def _over_time(
        self, params: Any, x: Any, carry: Any, output: Callable[[Any], Any]
    ) -> tuple[Any, Any]:
        x = as_value(x)
        require(len(x.shape) == 3, f"{self!r} takes x of rank 3, got shape {list(x.shape)}")
        gates = self._projected(params, x if self.time_first else f.swapaxes(x, 0, 1))
        held = self._held(params)
        if carry is None:
            carry = self.carry(gates.shape[1], element_of(gates)[0])

        def step(carry: Any, gate: Any) -> tuple[Any, Any]:
            carry = self._cell(held, carry, gate)
            return carry, output(carry)

        return unrolled(step, carry, gates) if self.unroll else scan(step, carry, gates)

    @abstractmethod
    def carry(self, batch: Any, dtype: Any = "f32") -> Any:
        """The carry before the first step: zeros."""

    @abstractmethod
    def output(self, carry: Any) -> Any:
        """h, [batch, hidden]."""

    @abstractmethod
    def _projected(self, params: Any, x: Any) -> Any:
        """x @ input + bias."""

    @abstractmethod
    def _held(self, params: Any) -> Any:
        """What every step uses of the parameters."""

    @abstractmethod
    def _cell(self, held: Any, carry: Any, gates: Any) -> Any:
        """The next carry from this one and one step of what `_projected` gave."""

    @abstractmethod
    def _first_bias(self, element: Any) -> Any: ...


def unrolled(step: Callable[[Any, Any], Any], carry: Any, xs: Any) -> tuple[Any, Any]:
    """scan() over one array as a Python loop."""
    length = xs.shape[0]
    require(not isinstance(length, Dim), "a loop over an unknown extent cannot be unrolled")
    require(length > 0, "a loop over no steps cannot be unrolled")
    made = []
    for t in range(length):
        carry, y = step(carry, xs[t])
        made.append(y)
    return carry, None if made[0] is None else f.stack(made)


@record(frozen=True)
class LSTM(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; forget gate: Gers et al., 2000).

        i, f, g, o = split(x @ input + h @ recurrent + bias)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g);   h = sigmoid(o) * tanh(c)

    The carry is (h, c).  bias is [4 * hidden], or [2, 4 * hidden] with PyTorch's two biases, which
    add up; it starts with 1 for the forget gate, otherwise 0.
    """

    gates = 4

    def carry(self, batch: Any, dtype: Any = "f32") -> tuple[Any, Any]:
        return f.zeros((batch, self.hidden), dtype), f.zeros((batch, self.hidden), dtype)

    def output(self, carry: Any) -> Any:
        return carry[0]

    def _projected(self, params: Any, x: Any) -> Any:
        made = product(x, parameter(params, "input", self))
        bias = params.get("bias")
        if bias is None:
            return made
        return f.add(made, bias if len(bias.shape) == 1 else f.add(bias[0], bias[1]))

    def _held(self, params: Any) -> Any:
        return parameter(params, "recurrent", self)

    def _cell(self, held: Any, carry: Any, gates: Any) -> tuple[Any, Any]:
        h, c = carry
        parts = f.split(f.add(gates, product(h, held)), 4, axis=-1)
        i, forget, o = (f.sigmoid(parts[k]) for k in (0, 1, 3))
        c = f.add(f.multiply(forget, c), f.multiply(i, f.tanh(parts[2])))
        return f.multiply(o, f.tanh(c)), c

    def _first_bias(self, element: Any) -> Any:
        zeros = f.zeros((self.hidden,), element)
        return f.concatenate([zeros, f.ones((self.hidden,), element), zeros, zeros])


@record(frozen=True)
class GRU(Recurrent):
    """Gated recurrent unit (Cho et al., 2014).

        r, z = sigmoid(x @ input + h @ recurrent + bias)          of these two gates
        n    = tanh(x @ input + bias[0] + r * (h @ recurrent + bias[1]))        reset_after
        n    = tanh(x @ input + bias + (r * h) @ recurrent)                     else
        h    = (1 - z) * n + z * h

    `reset_after` is what PyTorch does and what Keras does by default: bias is [2, 3 * hidden];
    without it, as in the paper, bias is [3 * hidden].  The carry is h.
    """

    reset_after: bool = True

    gates = 3

    def carry(self, batch: Any, dtype: Any = "f32") -> Any:
        return f.zeros((batch, self.hidden), dtype)

    def output(self, carry: Any) -> Any:
        return carry

    def _projected(self, params: Any, x: Any) -> Any:
        made = product(x, parameter(params, "input", self))
        bias = params.get("bias")
        if bias is None:
            return made
        rank = 2 if self.reset_after else 1
        require(len(bias.shape) == rank, f"{self!r}: the bias has shape {list(bias.shape)}")
        return f.add(made, bias[0] if self.reset_after else bias)

    def _held(self, params: Any) -> tuple[Any, Any]:
        """The recurrent weights and bias, or the weights of two gates and of the third."""
        weights, bias = parameter(params, "recurrent", self), params.get("bias")
        if self.reset_after:
            return weights, None if bias is None else bias[1]
        return weights[:, : 2 * self.hidden], weights[:, 2 * self.hidden :]

    def _cell(self, held: Any, carry: Any, gates: Any) -> Any:
        h, width = carry, 2 * self.hidden
        if self.reset_after:
            pull = product(h, held[0])
            pull = pull if held[1] is None else f.add(pull, held[1])
            r, z = f.split(f.sigmoid(f.add(gates[:, :width], pull[:, :width])), 2, axis=-1)
            n = f.tanh(f.add(gates[:, width:], f.multiply(r, pull[:, width:])))
        else:
            both = f.add(gates[:, :width], product(h, held[0]))
            r, z = f.split(f.sigmoid(both), 2, axis=-1)
            n = f.tanh(f.add(gates[:, width:], product(f.multiply(r, h), held[1])))
        return f.add(n, f.multiply(z, f.subtract(h, n)))

    def _first_bias(self, element: Any) -> Any:
        width = 3 * self.hidden
        return f.zeros((2, width) if self.reset_after else (width,), element)
