"""`gc.optim`: optimisers as plain functions over pytrees that build plain graph nodes.

    optimiser = gc.optim.adam(1e-3)
    state = optimiser.init(params)
    params, state = optimiser.update(gradients, state, params)

Formulas are PyTorch's.  They work in a trace and on NumPy arrays; a parameter keeps its dtype and
what is kept per parameter has that dtype too (f16 and bf16 compute in f32).  A learning rate is a
number, a 0-d array or a schedule of the number of updates made so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.base.hints import missing
from graphc.base.record import record
from graphc.base.refusing import refuse_all
from graphc.errors import TraceError, TypeRuleError
from graphc.frontend.trace.hooks import seen
from graphc.frontend.trace.tree import TreeDef, flatten, leaf_names, unflatten
from graphc.ir.types import DType
from graphc.learn.recipe import Call, recipe
from graphc.learn.schedules import (
    Schedule,
    constant,
    cosine,
    exponential,
    linear,
    piecewise,
    rate_at,
    warm_up,
)
from graphc.learn.trees import matched, tree_map
from graphc.ops.record.families import require
from graphc.ops.record.value import element_of, is_python_number
from graphc.ops.record.value import functions as f

__all__ = [
    "Optimiser", "Schedule", "adagrad", "adam", "adamw", "clip_by_global_norm", "constant",
    "cosine", "exponential", "global_norm", "linear", "matrices", "momentum", "nesterov",
    "piecewise", "rmsprop", "sgd", "warm_up",
]  # fmt: skip

Rate = Any  # a number, a 0-d array, or a Schedule
Mask = Any  # a tree of bools, or a function from the parameters to one
# (scalars, decay, gradient, parameter, *kept) -> (parameter, *kept), all of one float dtype
Rule = Callable[..., tuple[Any, ...]]


@record(frozen=True)
class Optimiser:
    """What an optimiser keeps per parameter, and how one update changes parameter and kept arrays.

    kept       name -> first value, per array kept; the state is {"step": i64[], name: tree, ...}
    scalars    the numbers that all parameters share, from the count of updates made so far
    decay      weight decay and the mask that says which parameters it is for
    prepare    what happens to the gradients first
    """

    rule: Rule
    scalars: Callable[[Any], tuple[Any, ...]]
    kept: tuple[tuple[str, float], ...] = ()
    decay: float = 0.0
    mask: Mask = None
    prepare: Callable[[Any], Any] | None = None
    call: Call | None = None  # that made it

    def made_by(self, call: Call) -> Optimiser:
        """The optimiser, which knows how it was made."""
        return Optimiser(
            self.rule, self.scalars, self.kept, self.decay, self.mask, self.prepare, call
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.call is not None:
            return self.call.reduced
        return Optimiser, (self.rule, self.scalars, self.kept, self.decay, self.mask, self.prepare)

    def init(self, params: Any) -> dict[str, Any]:
        """The state before the first update."""
        state: dict[str, Any] = {"step": np.zeros((), np.int64)}
        for name, value in self.kept:
            state[name] = tree_map(lambda x, value=value: f.full_like(x, value), params)
        return state

    def update(self, gradients: Any, state: dict[str, Any], params: Any) -> tuple[Any, Any]:
        """(new parameters, new state). A gradient of None leaves its parameter as it is.

        Raises TraceError when a tree does not have the parameters' structure, TypeRuleError for a
        gradient of another shape or of a parameter that is no float.
        """
        if self.prepare is not None:
            gradients = seen(self.prepare)(gradients)
        leaves, tree = flatten(params, keep_order=True)
        names = [name for name, _ in self.kept]
        _check_state(state, names)
        columns = [matched(tree, state[name], f"state[{name!r}]") for name in names]
        given = matched(tree, gradients, "gradients")
        scalars, decays = seen(self.scalars)(state["step"]), self.decays(tree, params)
        rows = [
            self._updated(scalars, *row)
            for row in zip(leaf_names(tree), decays, given, leaves, *columns)
        ]
        made = [unflatten(tree, column) for column in zip(*rows)] or [params]
        return made[0], {"step": f.add(state["step"], 1), **dict(zip(names, made[1:]))}

    def clipped(self, max_norm: Any) -> Optimiser:
        """This optimiser, with gradients first scaled to a global norm of at most `max_norm`."""
        return Optimiser(
            self.rule,
            self.scalars,
            self.kept,
            self.decay,
            self.mask,
            lambda gradients: clip_by_global_norm(gradients, max_norm),
            Call(Optimiser.clipped, (self, max_norm), {}),
        )

    def masked(self, mask: Mask) -> Optimiser:
        """This optimiser with another mask for its weight decay."""
        return Optimiser(self.rule, self.scalars, self.kept, self.decay, mask, self.prepare)

    def decays(self, tree: TreeDef, params: Any) -> list[float]:
        """The weight decay of each parameter. Raises TypeRuleError for a mask that is none."""
        if self.mask is None or not self.decay:
            return [self.decay] * tree.count
        mask = seen(self.mask)(params) if callable(self.mask) else self.mask
        chosen = matched(tree, mask, "mask")
        require(
            all(isinstance(c, bool | np.bool_) for c in chosen), "a weight decay mask holds bools"
        )
        return [self.decay if c else 0.0 for c in chosen]

    def _updated(
        self, scalars: Any, name: str, decay: float, gradient: Any, parameter: Any, *kept: Any
    ) -> tuple[Any, ...]:
        if gradient is None:
            return (parameter, *kept)
        element = element_of(parameter)[0]
        _check(name, element, gradient, parameter)
        wide = [f.astype(x, element.compute) for x in (gradient, parameter, *kept)]
        made = seen(self.rule)([_as(s, element.compute) for s in scalars], decay, *wide)
        return tuple(f.astype(x, element) for x in made)


def _check_state(state: Any, names: list[str]) -> None:
    wanted = ["step", *names]
    if not isinstance(state, dict) or sorted(state) != sorted(wanted):
        found = ", ".join(state) if isinstance(state, dict) else type(state).__name__
        raise TraceError(
            f"this optimiser keeps {', '.join(wanted)}; the state given is {found}",
            hint="start from optimiser.init(params)",
        )


def _check(name: str, element: DType, gradient: Any, parameter: Any) -> None:
    title = f"parameter {name}" if name else "the parameter"
    require(element.is_float, f"{title} is {element.name}: optimisers change floats")
    if np.shape(gradient) != np.shape(parameter):
        raise TypeRuleError(
            f"{title} has shape {list(np.shape(parameter))}, "
            f"its gradient {list(np.shape(gradient))}"
        )


def _as(scalar: Any, element: DType) -> Any:
    """A scalar that does not change the dtype of what it meets."""
    return float(scalar) if is_python_number(scalar) else f.astype(scalar, element)


def _check_rate(rate: Rate) -> None:
    known = is_python_number(rate) or callable(rate) or hasattr(rate, "dtype")
    require(known, f"a learning rate is a number, an array or a schedule, not {rate!r}")
    require(not is_python_number(rate) or rate >= 0, f"a learning rate of {rate}")


def _fraction(**given: float) -> None:
    for name, value in given.items():
        require(0.0 <= value < 1.0, f"{name} {value} is not in 0..1")


def _mixed(old: Any, new: Any, keep: float) -> Any:
    """keep * old + (1 - keep) * new."""
    return f.add(f.multiply(old, keep), f.multiply(new, 1.0 - keep))


def _decayed(gradient: Any, parameter: Any, decay: float) -> Any:
    """The gradient of loss + decay / 2 * parameter**2."""
    return f.add(gradient, f.multiply(parameter, decay)) if decay else gradient


def matrices(params: Any) -> Any:
    """A mask for weight decay: True for arrays of rank 2 or more, so not for biases and norms."""
    return tree_map(lambda x: len(np.shape(x)) > 1, params)


# ------------------------------------------------------------------------------- gradient descent


@recipe
def sgd(rate: Rate = 1e-2, *, weight_decay: float = 0.0, mask: Mask = None) -> Optimiser:
    """p - rate * g."""
    _check_rate(rate)

    def rule(scalars: Any, decay: float, g: Any, p: Any) -> tuple[Any, ...]:
        return (f.subtract(p, f.multiply(_decayed(g, p, decay), scalars[0])),)

    return Optimiser(rule, lambda step: (rate_at(rate, step),), (), weight_decay, mask)


def _with_velocity(
    rate: Rate, factor: float, ahead: bool, weight_decay: float, mask: Mask
) -> Optimiser:
    _check_rate(rate)
    _fraction(momentum=factor)

    def rule(scalars: Any, decay: float, g: Any, p: Any, v: Any) -> tuple[Any, ...]:
        g = _decayed(g, p, decay)
        v = f.add(f.multiply(v, factor), g)
        move = f.add(g, f.multiply(v, factor)) if ahead else v
        return f.subtract(p, f.multiply(move, scalars[0])), v

    kept = (("velocity", 0.0),)
    return Optimiser(rule, lambda step: (rate_at(rate, step),), kept, weight_decay, mask)


@recipe
def momentum(
    rate: Rate = 1e-2,
    momentum: float = 0.9,
    *,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimiser:
    """v = momentum * v + g;  p - rate * v, or with `nesterov` p - rate * (g + momentum * v)."""
    return _with_velocity(rate, momentum, nesterov, weight_decay, mask)


@recipe
def nesterov(
    rate: Rate = 1e-2, momentum: float = 0.9, *, weight_decay: float = 0.0, mask: Mask = None
) -> Optimiser:
    """Nesterov's accelerated gradient: momentum() with nesterov=True."""
    return _with_velocity(rate, momentum, True, weight_decay, mask)


# ------------------------------------------------------------------------------- adaptive rates


def _adam(
    rate: Rate, beta1: float, beta2: float, epsilon: float, decay: float, mask: Mask, coupled: bool
) -> Optimiser:
    _check_rate(rate)
    _fraction(beta1=beta1, beta2=beta2)

    def scalars(step: Any) -> tuple[Any, ...]:
        """The rate and, of the form of the update with one division only (section 2 of the paper),
        the corrected rate and epsilon; in f64.

            rate / c1 * m / (sqrt(v) / r + epsilon) = (rate * r / c1) * m / (sqrt(v) + epsilon * r)
        """
        now, count = rate_at(rate, step), f.add(f.astype(step, "f64"), 1.0)
        correction, square = (f.subtract(1.0, f.power(beta, count)) for beta in (beta1, beta2))
        root = f.sqrt(square)
        return now, f.divide(f.multiply(now, root), correction), f.multiply(root, epsilon)

    def rule(given: Any, decay: float, g: Any, p: Any, m: Any, v: Any) -> tuple[Any, ...]:
        now, corrected, small = given
        if decay and not coupled:
            p = f.subtract(p, f.multiply(p, f.multiply(now, decay)))
        g = _decayed(g, p, decay) if coupled else g
        m, v = _mixed(m, g, beta1), _mixed(v, f.square(g), beta2)
        move = f.divide(m, f.add(f.sqrt(v), small))
        return f.subtract(p, f.multiply(move, corrected)), m, v

    kept = (("first_moment", 0.0), ("second_moment", 0.0))
    return Optimiser(rule, scalars, kept, decay, mask)


@recipe
def adam(
    rate: Rate = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    *,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimiser:
    """Adam (Kingma and Ba, 2015); weight decay is added to the gradient."""
    return _adam(rate, beta1, beta2, epsilon, weight_decay, mask, coupled=True)


@recipe
def adamw(
    rate: Rate = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    *,
    weight_decay: float = 1e-2,
    mask: Mask = None,
) -> Optimiser:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): p first shrinks by
    rate * weight_decay."""
    return _adam(rate, beta1, beta2, epsilon, weight_decay, mask, coupled=False)


@recipe
def adagrad(
    rate: Rate = 1e-2,
    *,
    initial: float = 0.0,
    epsilon: float = 1e-10,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimiser:
    """Adagrad (Duchi, Hazan and Singer, 2011): p - rate * g / (sqrt(sum of g**2) + epsilon)."""
    _check_rate(rate)

    def rule(scalars: Any, decay: float, g: Any, p: Any, total: Any) -> tuple[Any, ...]:
        g = _decayed(g, p, decay)
        total = f.add(total, f.square(g))
        move = f.divide(g, f.add(f.sqrt(total), epsilon))
        return f.subtract(p, f.multiply(move, scalars[0])), total

    kept = (("square_sum", initial),)
    return Optimiser(rule, lambda step: (rate_at(rate, step),), kept, weight_decay, mask)


@recipe
def rmsprop(
    rate: Rate = 1e-2,
    smoothing: float = 0.99,
    *,
    epsilon: float = 1e-8,
    momentum: float = 0.0,
    centred: bool = False,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimiser:
    """RMSprop (Hinton, 2012): g over the root of a running mean of g**2.

    `centred` takes the running mean of g out of it (Graves, 2013); `momentum` collects the moves.
    """
    _check_rate(rate)
    _fraction(smoothing=smoothing, momentum=momentum)
    names = ["square_mean"] + ["mean"] * bool(centred) + ["velocity"] * (momentum > 0)

    def rule(scalars: Any, decay: float, g: Any, p: Any, *kept: Any) -> tuple[Any, ...]:
        g, state = _decayed(g, p, decay), dict(zip(names, kept))
        spread = state["square_mean"] = _mixed(state["square_mean"], f.square(g), smoothing)
        if centred:
            state["mean"] = _mixed(state["mean"], g, smoothing)
            spread = f.subtract(spread, f.square(state["mean"]))
        move = f.divide(g, f.add(f.sqrt(spread), epsilon))
        if momentum:
            move = state["velocity"] = f.add(f.multiply(state["velocity"], momentum), move)
        return f.subtract(p, f.multiply(move, scalars[0])), *state.values()

    kept = tuple((name, 0.0) for name in names)
    return Optimiser(rule, lambda step: (rate_at(rate, step),), kept, weight_decay, mask)


# ------------------------------------------------------------------------------- norms


def global_norm(tree: Any) -> Any:
    """The Euclidean norm of all arrays of a tree together; f16 and bf16 are squared in f32."""
    leaves = [f.astype(x, element_of(x)[0].compute) for x in flatten(tree)[0]]
    require(len(leaves) > 0, "global_norm of a tree without arrays")
    total = f.sum(f.square(leaves[0]))
    for leaf in leaves[1:]:
        total = f.add(total, f.sum(f.square(leaf)))
    return f.sqrt(total)


def clip_by_global_norm(gradients: Any, max_norm: Any) -> Any:
    """The gradients scaled so that their global norm is at most `max_norm` (as PyTorch does)."""
    if not flatten(gradients)[0]:
        return gradients
    known = is_python_number(max_norm)
    require(not known or max_norm > 0, f"gradients cannot be clipped to a norm of {max_norm}")
    factor = f.minimum(f.divide(max_norm, f.add(global_norm(gradients), 1e-6)), 1.0)

    def scaled(gradient: Any) -> Any:
        element = element_of(gradient)[0]
        wide = f.multiply(f.astype(gradient, element.compute), _as(factor, element.compute))
        return f.astype(wide, element)

    return tree_map(scaled, gradients)


refuse_all(["Optimiser", "clip_by_global_norm", "global_norm", "matrices"], globals())


def __getattr__(name: str) -> object:
    raise missing("graphc.optim", name, __all__)
