"""x[mask] with a traced mask: elements whose number is not known while tracing.

    x[mask] *= 2          x[mask] = y[mask] + 1          x[mask].sum()

They are kept as the whole array and the mask.  Element-wise work is done on all elements, a
reduction passes over those that the mask leaves out, and a write puts those of the mask back.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import TraceError
from graphc.frontend.trace.operands import is_basic, mapped, plain
from graphc.ir.graph import is_same
from graphc.ir.types import BOOL, DType, Type
from graphc.ops.index.traced_slices import MASK_HINT, is_whole
from graphc.ops.record.families import require_real
from graphc.ops.record.value import (
    NUMPY,
    PUBLIC,
    Stateful,
    Trace,
    Value,
    as_value,
    cast_value,
    current,
    tracing,
)

_REDUCTIONS = {
    np.sum: "sum",
    np.prod: "prod",
    np.mean: "mean",
    np.any: "any",
    np.all: "all",
    np.max: "max",
    np.min: "min",
    np.amax: "max",
    np.amin: "min",
    np.std: "std",
    np.var: "var",
    np.count_nonzero: "count_nonzero",
}
_ELEMENTWISE = frozenset((np.where, np.clip, np.round, np.nan_to_num, np.real, np.imag, np.isclose))


class SelectedElements(Stateful):
    """The elements of `whole` where `mask` holds, which covers its first axes."""

    __slots__ = ("mask", "whole")
    __array_priority__ = 1001.0

    def __init__(self, whole: Any, mask: Value) -> None:
        self.whole = whole
        self.mask = mask

    @property
    def type(self) -> Type:
        made: Type = self.counted().type
        return made

    @property
    def element(self) -> DType:
        element: DType = self.whole.element
        return element

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.element.numpy

    @property
    def ndim(self) -> int:
        return 1 + len(self._rest)

    @property
    def size(self) -> Any:
        """How many there are: a traced number."""
        return PUBLIC["sum"](self._wide_mask())

    @property
    def _rest(self) -> tuple[Any, ...]:
        return tuple(self.whole.shape[self.mask.ndim :])

    def read(self, trace: Trace) -> Value:
        made: Value = self.counted()
        return made

    def counted(self) -> Any:
        """The elements as an array, whose length the run decides. Raises TraceError for those of
        the body of a loop or a choice."""
        if not self._can_count():
            raise self._refused("their number")
        with tracing(self._home):
            places = PUBLIC["flatnonzero"](self.mask)
            return PUBLIC["take"](PUBLIC["reshape"](self.whole, (-1, *self._rest)), places, axis=0)

    @property
    def _home(self) -> Trace:
        """The trace that they are made in: a body that uses what the function around it has found
        is given the elements."""
        here, home = current(), self.mask.owner
        assert here is not None
        return home if self.whole.owner is home and not home.closed else here

    def _can_count(self) -> bool:
        """Whether the run may decide sizes there: not in a loop or a branch."""
        return current() is not None and self._home.counts_sizes

    def _refused(self, what: str) -> TraceError:
        trace = self.mask.owner
        return TraceError(
            f"the elements at a traced mask are not counted while tracing: {what} is not known"
            + (f", as {fixed}" if (fixed := getattr(current(), "fixed_by", "")) else ""),
            location=trace.locate() if trace.locate else None,
            hint=MASK_HINT,
        )

    def __repr__(self) -> str:
        return f"<elements of {self.whole!r} at {self.mask!r}>"

    def __len__(self) -> int:
        if self._can_count():
            return len(self.counted())
        raise self._refused("their number")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, SelectedElements) and self._is_narrowed_by(index):
            return SelectedElements(self.whole, self.mask & index.whole)
        if isinstance(index, tuple) and index and is_whole(index[0]) and is_basic(index):
            every = (slice(None),) * self.mask.ndim
            return SelectedElements(self.whole[(*every, *index[1:])], self.mask)
        return self.counted()[mapped(index, counted_elements)]

    def __setitem__(self, index: Any, value: Any) -> None:
        """y[y > 5] = 0 and y[y > 5] += 1. Raises TraceError for other writes."""
        if isinstance(index, SelectedElements) and self._is_narrowed_by(index):
            part = self[index]
            if isinstance(value, SelectedElements) or not np.ndim(value):
                value = as_value(part._whole_of(value))
                require_real("x[mask][...] = y", value, self.whole)
                value = cast_value(value, self.element)
                self.whole = PUBLIC["where"](part._wide_mask(), value, self.whole)
                return
        raise TraceError(
            "elements at a traced mask take one number, at a mask of their own: y[y > 5] = 0",
            hint="y = x[np.nonzero(mask)] is an array of them, and is written to like any",
        )

    def _is_narrowed_by(self, index: SelectedElements) -> bool:
        """Whether an index says of each element here that it stays or goes: y[y > 5]."""
        alike = index.element is BOOL and index.whole.ndim == self.mask.ndim
        return alike and is_same(self.mask.node, index.mask.node)

    def __iter__(self) -> Any:
        if self._can_count():
            return iter(self.counted())
        raise self._refused("their number")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self._refused("an array of them")

    def __getattr__(self, name: str) -> Any:
        if name in _REDUCTIONS.values():
            return lambda *args, **kwargs: self._reduced(name, *args, **kwargs)
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.counted(), name)

    # -------------------------------------------------------------------------------- element-wise

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.get("out") is not None:
            raise self._refused(f"what np.{ufunc.__name__}.{method} makes of them")
        if ufunc.signature is not None:  # a product: the elements alone
            return ufunc(*mapped(plain(inputs), counted_elements), **kwargs)
        return self._apply(ufunc, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _REDUCTIONS:
            return args[0]._reduced(_REDUCTIONS[function], *args[1:], **kwargs)
        if function in _ELEMENTWISE:
            return self._apply(function, args, kwargs)
        args, kwargs = mapped((args, kwargs), counted_elements)
        return function(*args, **kwargs)

    def _apply(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        args, kwargs = plain((args, kwargs))
        if self._home is not current() and self._can_count():  # the body makes nothing of the rest
            args, kwargs = mapped((args, kwargs), counted_elements)
            return function(*args, **kwargs)
        try:
            args, kwargs = mapped((args, kwargs), self._whole_of)
        except TraceError:  # it stands beside the elements alone
            if not self._can_count():
                raise
            args, kwargs = mapped((args, kwargs), counted_elements)
            return function(*args, **kwargs)
        made = (NUMPY.get(function) or function)(*args, **kwargs)
        return mapped(made, lambda part: SelectedElements(part, self.mask))

    def _whole_of(self, operand: Any) -> Any:
        """An operand that stands beside the whole array. Raises TraceError for other lengths."""
        if isinstance(operand, SelectedElements):
            if not is_same(self.mask.node, operand.mask.node):
                raise TraceError(
                    "elements at two different traced masks meet",
                    hint="their numbers may differ: use one mask, or np.where on whole arrays",
                )
            if len(operand._rest) != len(self._rest):
                raise self._refused("whether rows stand beside them")
            return operand.whole
        if len(np.shape(operand)) > len(self._rest) and np.size(operand) != 1:
            raise self._refused(f"whether {list(np.shape(operand))} elements stand beside them")
        return operand

    def astype(self, dtype: Any, copy: bool = True) -> SelectedElements:
        return SelectedElements(self.whole.astype(dtype), self.mask)

    def copy(self, order: str = "C") -> SelectedElements:
        return SelectedElements(self.whole, self.mask)

    def clip(self, *args: Any, **kwargs: Any) -> Any:
        return self._apply(np.clip, (self, *args), kwargs)

    def round(self, decimals: int = 0) -> Any:
        return self._apply(np.round, (self, decimals), {})

    # -------------------------------------------------------------------------------- reductions

    def _wide_mask(self) -> Any:
        extra = len(self._rest)
        wide = PUBLIC["reshape"](self.mask, (*self.mask.shape, *(1,) * extra))
        return PUBLIC["broadcast_to"](wide, self.whole.shape)

    def _reduced(self, name: str, axis: Any = None, **kwargs: Any) -> Any:
        """Over all axes, or over the elements (axis 0)."""
        if axis not in (None, 0):
            raise self._refused(f"{name} over axis {axis}")
        axes = tuple(range(self.mask.ndim)) if axis == 0 else None
        if name in ("max", "min"):
            kwargs.setdefault("initial", _lowest(self.element, name == "min"))
        if name in ("std", "var"):
            made = self._variance(axes, **kwargs)
            return made if name == "var" else PUBLIC["sqrt"](made)
        if name == "count_nonzero":
            counted = PUBLIC["logical_and"](self._wide_mask(), self.whole)
            return PUBLIC["sum"](counted, axes, **kwargs)
        return PUBLIC[name](self.whole, axis=axes, where=self._wide_mask(), **kwargs)

    def _variance(self, axes: Any, ddof: int = 0, keepdims: bool = False) -> Any:
        wide = self._wide_mask()
        away = self.whole - PUBLIC["mean"](self.whole, axes, keepdims=True, where=wide)
        squares = PUBLIC["real"](away * PUBLIC["conj"](away))
        total = PUBLIC["sum"](squares, axes, keepdims=keepdims, where=wide)
        return total / (PUBLIC["sum"](wide, axes, keepdims=keepdims) - ddof).astype(total.dtype)


def counted_elements(operand: Any) -> Any:
    """Elements at a mask as an array whose length the run decides; all else as it is."""
    return operand.counted() if isinstance(operand, SelectedElements) else operand


def _lowest(element: DType, highest: bool) -> Any:
    """What max (min) of no elements is here; NumPy raises, which is not known while tracing."""
    if element is BOOL:
        return highest
    if element.is_float:
        return np.inf if highest else -np.inf
    info = np.iinfo(element.numpy)
    return info.max if highest else info.min


def selected(x: Any, index: Any) -> SelectedElements | None:
    """x[index] where the index is one traced mask, alone or before whole axes; None otherwise."""
    parts = index if isinstance(index, tuple) else (index,)
    masks = [p for p in parts if isinstance(p, Value) and p.element is BOOL]
    if len(masks) != 1 or parts[0] is not masks[0]:
        return None
    if not all(p is Ellipsis or is_whole(p) for p in parts[1:]):
        return None
    mask = masks[0]
    if mask.ndim > x.ndim or x.shape[: mask.ndim] != mask.shape:
        raise TraceError(
            f"boolean index did not match: a mask of shape {list(mask.shape)} on an array of "
            f"{list(x.shape)}"
        )
    return SelectedElements(x.owner.wrap(x.node) if x.known is None else x.copy(), mask)


def put_back(x: Any, index: Any, chosen: SelectedElements) -> Any:
    """What x is after x[index] = chosen."""
    place = selected(x, index)
    if place is None:
        raise chosen._refused("where they go")
    value = cast_value(PUBLIC["broadcast_to"](place._whole_of(chosen), x.shape), x.element)
    return PUBLIC["where"](place._wide_mask(), value, x)


# ------------------------------------------------------------------------------------ operators


def _in_place(name: str) -> Callable[[SelectedElements, Any], SelectedElements]:
    function = getattr(operator, f"__{name}__")

    def apply(self: SelectedElements, other: Any) -> SelectedElements:
        made = function(self, other)
        if not np.can_cast(made.dtype, self.dtype, "same_kind"):
            raise TraceError(f"{name} in place: cannot store {made.element} in {self.element}")
        self.whole = made.whole.astype(self.dtype)
        return self

    return apply


_UFUNCS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "matmul": np.matmul,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
_COMPARISONS = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def _binary(ufunc: Any, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def apply(self: SelectedElements, other: Any) -> Any:
        inputs = (other, self) if reflected else (self, other)
        return self.__array_ufunc__(ufunc, "__call__", *inputs)

    return apply


for _name, _ufunc in {**_UFUNCS, **_COMPARISONS}.items():
    setattr(SelectedElements, f"__{_name}__", _binary(_ufunc))
for _name, _ufunc in _UFUNCS.items():
    setattr(SelectedElements, f"__r{_name}__", _binary(_ufunc, reflected=True))
    setattr(SelectedElements, f"__i{_name}__", _in_place(_name))
for _name, _unary in (("neg", np.negative), ("abs", np.absolute), ("invert", np.invert)):
    setattr(
        SelectedElements,
        f"__{_name}__",
        lambda self, _unary=_unary: self._apply(_unary, (self,), {}),
    )
