"""Softmax, log-softmax and the losses made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.op import AXIS, Attr, Composite, Range, Sample
from graphc.ir.traits import Traits
from graphc.ir.types import F64, I64, AnyType, DType, Type, definitely_different, tensor
from graphc.ops.index.gather import checked_labels
from graphc.ops.record.arguments import Array, ArrayLike, Tensor
from graphc.ops.record.batching import along
from graphc.ops.record.dims import shape_of
from graphc.ops.record.families import (
    FLOATS,
    define,
    normalise_axis,
    require,
    require_dtype,
    require_tensor,
    sample_array,
    wide,
)
from graphc.ops.record.value import Value, as_value, element_of, emit, functions, public
from graphc.ops.reduce.statistics import composite_cost, in_compute_type

ALONG = Attr("axis", "int", within=AXIS)

# ------------------------------------------------------------------------------------------ softmax


def float_value(x: ArrayLike) -> Any:
    """x as a float tensor: integers become f64."""
    element = element_of(x)[0]
    return as_value(x) if element.kind == "f" else functions.astype(x, F64)


def axis_type(name: str, x: AnyType, axis: int) -> Type:
    """The type of a float tensor that an op works on along a non-empty axis."""
    require_tensor(name, x)
    assert isinstance(x, Type)
    require_dtype(name, x, FLOATS)
    require(axis < x.rank, f"{name}: axis {axis} is out of range for {x}")
    return x


def _shifted(x: ArrayLike, axis: int) -> tuple[Any, DType]:
    y, element = in_compute_type(x)
    return functions.subtract(y, functions.max(y, axis, keepdims=True)), element


def _expand_softmax(x: Value, *, axis: int) -> Any:
    if x.shape[axis] == 0:
        return x
    shifted, element = _shifted(x, axis)
    powers = functions.exp(shifted)
    made = functions.divide(powers, functions.sum(powers, axis, keepdims=True))
    return functions.astype(made, element)


def _expand_log_softmax(x: Value, *, axis: int) -> Any:
    if x.shape[axis] == 0:
        return x
    shifted, element = _shifted(x, axis)
    total = functions.sum(functions.exp(shifted), axis, keepdims=True)
    return functions.astype(functions.subtract(shifted, functions.log(total)), element)


def _softmax_gradient(ct: Value, result: Value, x: Value, *, axis: int) -> tuple[Any]:
    f, (y, element) = functions, in_compute_type(result)
    wide = f.astype(ct, element.compute)
    mean = f.sum(f.multiply(wide, y), axis, keepdims=True)
    return (f.astype(f.multiply(y, f.subtract(wide, mean)), element),)


def _log_softmax_gradient(ct: Value, result: Value, x: Value, *, axis: int) -> tuple[Any]:
    f, (y, element) = functions, in_compute_type(result)
    wide = f.astype(ct, element.compute)
    total = f.sum(wide, axis, keepdims=True)
    return (f.astype(f.subtract(wide, f.multiply(f.exp(y), total)), element),)


def log_softmax_reference(x: Array, axis: int) -> Any:
    """x - log(sum(exp(x))) in f64, by NumPy's own logaddexp on the shifted row."""
    x = np.asarray(x, np.float64)
    if x.size == 0:
        return x
    x = x - np.max(x, axis=axis, keepdims=True)
    return x - np.expand_dims(np.logaddexp.reduce(x, axis=axis), axis)


def softmax_reference(x: Array, axis: int) -> Any:
    return np.exp(log_softmax_reference(x, axis))


def axis_samples() -> list[Sample]:
    """Every float type along the last axis, other axes, large values, bad axes."""

    def sample(shape: tuple[int, ...], axis: int, name: str = "f32", good: bool = True) -> Sample:
        array = sample_array(name, shape, (-6.0, 6.0), len(shape))
        return Sample((array,), {"axis": axis}, good=good, tolerance=4)

    made = [sample((3, 9), 1, name) for name in FLOATS]
    made += [sample((2, 3, 4), axis) for axis in range(3)]
    made += [sample((70,), 0), sample((2, 0), 1), sample((0, 2), 1), sample((5, 1), 1)]
    large = np.array([[1e30, 1e30, -np.inf], [-1000.0, -1001.0, -1002.0]], np.float32)
    made.append(Sample((large,), {"axis": 1}, tolerance=4))
    return [*made, sample((3,), 1, good=False), sample((3,), 0, "i32", good=False)]


for _name, _expand, _reference, _gradient in (
    ("softmax", _expand_softmax, softmax_reference, _softmax_gradient),
    ("log_softmax", _expand_log_softmax, log_softmax_reference, _log_softmax_gradient),
):

    def _infer(x: AnyType, *, axis: int, name: str = _name) -> Type:
        return axis_type(name, x, axis)

    def _public(x: Value, axis: int = -1, *, name: str = _name) -> Any:
        x = float_value(x)
        return emit(name, x, axis=normalise_axis(axis, len(x.shape), name))

    define(
        _name,
        batch=along("axis"),
        infer=_infer,
        reference=wide(_reference),
        lower=Composite(_expand),
        attrs=(ALONG,),
        dtypes=FLOATS,
        gradient=_gradient,
        cost=composite_cost(30),
        samples=axis_samples,
        doc=f"{_name} along an axis, shifted by the largest element so that nothing overflows.",
    )
    _public.__doc__ = f"{_name} of x along `axis`; integers become f64."
    public(name=_name)(_public)


@public()
def softmin(x: ArrayLike, axis: int = -1) -> Any:
    """softmax(-x)."""
    return functions.softmax(functions.negative(x), axis)


# ------------------------------------------------------------------------------------ cross entropy


def _cross_entropy_type(logits: AnyType, labels: AnyType, *, axis: int, smoothing: float) -> Type:
    x = axis_type("cross_entropy", logits, axis)
    require_tensor("cross_entropy", labels)
    assert isinstance(labels, Type)
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    require(x.shape[axis] != 0, f"cross_entropy: {x} has no classes")
    if labels.dtype.is_integer:
        require(labels.shape == rest, f"cross_entropy: labels {labels} do not fit logits {x}")
    else:
        legal = labels.dtype is x.dtype and labels.shape == x.shape
        require(legal, f"cross_entropy: probabilities {labels} do not fit logits {x}")
    return tensor(x.dtype, rest)


def _expand_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, axis: int, smoothing: float
) -> Any:
    """log sum exp(x) - x[label]; with probabilities p it is sum(p (log sum exp(x) - x))."""
    f, (y, element) = functions, in_compute_type(logits)
    if element_of(labels)[0].is_integer:
        total = f.logsumexp(y, axis)
        legal = checked_labels("cross_entropy", labels, y.shape[axis])
        chosen = f.take_along_axis(y, f.expand_dims(legal, axis), axis, mode="clip")
        made = f.subtract(total, f.squeeze(chosen, axis))
        uniform = f.subtract(total, f.mean(y, axis)) if smoothing else None
    else:
        losses = f.negative(f.log_softmax(y, axis))
        made = f.sum(f.multiply(f.astype(labels, element.compute), losses), axis)
        uniform = f.mean(losses, axis) if smoothing else None
    if smoothing:
        made = f.add(f.multiply(made, 1 - smoothing), f.multiply(uniform, smoothing))
    return f.astype(made, element)


def _cross_entropy_gradient(
    ct: Value, result: Value, logits: Value, labels: Value, *, axis: int, smoothing: float
) -> tuple[Any, Any]:
    """softmax(logits) less the wanted probabilities; no array of these is made from labels."""
    f, (y, element) = functions, in_compute_type(logits)
    wide = f.expand_dims(f.astype(ct, element.compute), axis)
    total = f.expand_dims(f.logsumexp(y, axis), axis)
    p = f.exp(f.subtract(y, total))
    count = y.shape[axis]
    if element_of(labels)[0].is_integer:
        least = smoothing / count if smoothing else 0.0
        others = f.subtract(p, least) if smoothing else p
        chosen = _is_label(labels, count, axis, len(y.shape))
        made = f.where(chosen, f.subtract(p, 1 - smoothing + least), others)
        return f.astype(f.multiply(wide, made), element), None
    wanted = f.multiply(f.astype(labels, element.compute), 1 - smoothing)
    wanted = f.add(wanted, smoothing / count)
    made = f.subtract(f.multiply(p, f.sum(wanted, axis, keepdims=True)), wanted)
    to_labels = f.multiply(f.multiply(wide, 1 - smoothing), f.subtract(total, y))
    return f.astype(f.multiply(wide, made), element), f.astype(to_labels, element_of(labels)[0])


def _is_label(labels: Tensor, count: Any, axis: int, rank: int) -> Any:
    """Whether an element along the axis is the one labelled."""
    f = functions
    places = f.expand_dims(checked_labels("cross_entropy", labels, count), axis)
    classes = f.reshape(f.arange(count), (count, *(1,) * (rank - axis - 1)))
    return f.equal(places, classes)


def _cross_entropy_reference(logits: Array, labels: Array, axis: int, smoothing: float) -> Any:
    losses = -log_softmax_reference(logits, axis)
    if labels.dtype.kind in "iu":
        labels = checked_labels("cross_entropy", labels, logits.shape[axis])
        classes = np.arange(logits.shape[axis]).reshape([-1] + [1] * (logits.ndim - axis - 1))
        wanted = np.expand_dims(labels, axis) == classes
    else:
        wanted = labels.astype(np.float64)
    weights = wanted * (1 - smoothing) + smoothing / logits.shape[axis]
    return np.sum(weights * losses, axis=axis)


def _cross_entropy_samples() -> list[Sample]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 7, (4,))
    made = []
    for name in FLOATS:
        logits = sample_array(name, (4, 7), (-3.0, 3.0), 0)
        p = softmax_reference(rng.normal(size=(4, 7)), 1).astype(logits.dtype)
        made += [Sample((logits, labels), {"axis": 1}), Sample((logits, p), {"axis": 1})]
    logits = sample_array("f32", (2, 5, 3), (-3.0, 3.0), 0)
    labels3 = rng.integers(0, 5, (2, 3)).astype(np.int32)
    made.append(Sample((logits, labels3), {"axis": 1, "smoothing": 0.1}))
    made.append(Sample((logits, softmax_reference(logits, 1).astype(np.float32)), {"axis": 1}))
    bad = [Sample((logits, labels3[:1]), {"axis": 1}, good=False)]
    return made + bad


define(
    "cross_entropy",
    batch=along("axis"),
    infer=_cross_entropy_type,
    reference=wide(_cross_entropy_reference),
    lower=Composite(_expand_cross_entropy),
    attrs=(ALONG, Attr("smoothing", "float", 0.0, within=Range(0.0, 1.0))),
    dtypes=FLOATS,
    gradient=_cross_entropy_gradient,
    cost=composite_cost(30),
    samples=_cross_entropy_samples,
    doc="-log softmax(x)[label] per row, or its mean under given probabilities.",
    traits=Traits(checks=True),
)

# ------------------------------------------------------------------------------------ public losses


def reduced(losses: ArrayLike, reduction: str) -> Any:
    """The losses themselves ("none"), their mean or their sum."""
    require(reduction in ("none", "mean", "sum"), f"no reduction named {reduction!r}")
    return losses if reduction == "none" else getattr(functions, reduction)(losses)


@public()
def cross_entropy(
    logits: Any,
    labels: ArrayLike,
    axis: int = -1,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Any:
    """Cross entropy of logits with integer labels or with probabilities of the logits' shape.

    Labels are 0 ... classes - 1.  Rows whose label is `ignore_index` (-100, say) have no loss and
    do not count in the mean, which is NaN where no row is left.  Raises OutOfRangeError, which is
    an IndexError, for any other label, where the loss or its gradient is computed.
    """
    logits, labels = float_value(logits), as_value(labels)
    place = normalise_axis(axis, len(logits.shape), "cross_entropy")
    whole = element_of(labels)[0].is_integer
    require(whole or ignore_index is None, "cross_entropy: ignore_index goes with integer labels")
    if not whole:
        labels = functions.astype(labels, element_of(logits)[0])
    labels, kept = _without(labels, ignore_index)
    losses = emit("cross_entropy", logits, labels, axis=place, smoothing=float(label_smoothing))
    return _reduced_kept(losses, kept, reduction)


def _without(labels: ArrayLike, ignore_index: int | None) -> tuple[Any, Any]:
    """Legal labels for the rows that are left out, and which rows are kept (None: all)."""
    if ignore_index is None:
        return labels, None
    f = functions
    kept = f.not_equal(f.astype(labels, I64), ignore_index)
    return f.where(kept, labels, 0), kept


def _reduced_kept(losses: Any, kept: Tensor | None, reduction: str) -> Any:
    """`reduced` over the rows that are kept."""
    if kept is None:
        return reduced(losses, reduction)
    f, (wide, element) = functions, in_compute_type(losses)
    wide = f.where(kept, wide, 0)
    if reduction == "mean":
        count = f.sum(f.astype(kept, element.compute))
        return f.astype(f.divide(f.sum(wide), count), element)
    return f.astype(reduced(wide, reduction), element)


@public(name="nll")
def negative_log_likelihood(
    log_probabilities: ArrayLike,
    labels: Any,
    axis: int = -1,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Any:
    """-log p[label] given log probabilities; labels and `ignore_index` as in cross_entropy."""
    f, given, labels = functions, as_value(log_probabilities), as_value(labels)
    place = normalise_axis(axis, len(given.shape), "nll")
    rest = (*given.shape[:place], *given.shape[place + 1 :])
    require(
        element_of(labels)[0].is_integer and tuple(labels.shape) == rest,
        f"nll: labels {_kind(labels)} do not fit log probabilities {_kind(given)}",
        hint="labels are integers, one per row",
    )
    labels, kept = _without(labels, ignore_index)
    legal = checked_labels("nll", labels, given.shape[place])
    chosen = f.take_along_axis(given, f.expand_dims(legal, place), place, mode="clip")
    return _reduced_kept(f.negative(f.squeeze(chosen, place)), kept, reduction)


def _kind(x: Value) -> str:
    return f"{element_of(x)[0].name}[{','.join(map(str, shape_of(x)))}]"


def require_alike(name: str, x: Value, y: Value) -> None:
    """Refuse predictions and targets that would broadcast: (8, 1) against (8,) compares all pairs.

    A single number goes with anything.
    """
    mine, other = shape_of(x), shape_of(y)
    differ = len(mine) != len(other) or any(map(definitely_different, mine, other))
    require(
        not differ or () in (mine, other),
        f"{name}: {_kind(x)} against {_kind(y)} would compare every row with every other",
        hint="give both one shape: np.squeeze(x, 1), y[:, None], or np.broadcast_to(...) if meant",
    )


def _difference(name: str, x: Value, y: Value) -> Any:
    require_alike(name, x, y)
    return functions.subtract(x, y)


@public(name="mse")
def mean_squared_error(x: Any, y: Any, reduction: str = "mean") -> Any:
    """(x - y)**2."""
    return reduced(functions.square(_difference("mse", x, y)), reduction)


@public(name="mae")
def mean_absolute_error(x: Any, y: Any, reduction: str = "mean") -> Any:
    """|x - y|."""
    return reduced(functions.absolute(_difference("mae", x, y)), reduction)


@public()
def huber(x: Any, y: Any, delta: float = 1.0, reduction: str = "mean") -> Any:
    """(x - y)**2 / 2 up to delta, linear beyond."""
    f, size = functions, functions.absolute(_difference("huber", x, y))
    linear = f.multiply(f.subtract(size, delta / 2), delta)
    inside = f.multiply(f.square(size), 0.5)
    return reduced(f.where(f.less_equal(size, delta), inside, linear), reduction)


@public()
def binary_cross_entropy(p: Any, y: Any, reduction: str = "mean") -> Any:
    """-(y log p + (1 - y) log(1 - p)); logarithms are held above -100, as in PyTorch."""
    require_alike("binary_cross_entropy", p, y)
    f = functions
    yes = f.maximum(f.log(p), -100.0)
    no = f.maximum(f.log1p(f.negative(p)), -100.0)
    kept = f.add(f.multiply(y, yes), f.multiply(f.subtract(1, y), no))
    return reduced(f.negative(kept), reduction)


@public()
def binary_cross_entropy_with_logits(x: Any, y: Any, reduction: str = "mean") -> Any:
    """binary_cross_entropy(sigmoid(x), y) = softplus(x) - x y, without overflow."""
    require_alike("binary_cross_entropy_with_logits", x, y)
    f = functions
    return reduced(f.subtract(f.softplus(x), f.multiply(x, y)), reduction)


@public()
def kl_divergence(log_p: Any, target: Any, axis: int = -1) -> Any:
    """sum(target (log target - log_p)) along an axis; a target of 0 adds nothing."""
    require_alike("kl_divergence", log_p, target)
    f = functions
    positive = f.greater(target, 0)
    logarithm = f.log(f.where(positive, target, 1))
    return f.sum(f.where(positive, f.multiply(target, f.subtract(logarithm, log_p)), 0), axis)
