"""How a size answers: by its value at hand, in numbers, or to NumPy's functions with a formula."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextvars import ContextVar
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import TraceError
from graphc.ir.user_lines import locate, user_asks

_identity = object.__hash__
checking: ContextVar[bool] = ContextVar("checking", default=False)
as_numbers: ContextVar[bool] = ContextVar("as_numbers", default=False)

# What makes an operand of a size, while something is traced: there it is a value, as in x / len(x).
lifting: ContextVar[Callable[[Any], Any] | None] = ContextVar("lifting", default=None)

# What NumPy's functions are of sizes and whole numbers: sizes again, or answers.
FORMULAS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.power: operator.pow,
    np.negative: operator.neg,
    np.absolute: operator.abs,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}


class _during:
    """The flag is set meanwhile: `with _during(flag)`."""

    __slots__ = ("flag", "token")

    def __init__(self, flag: ContextVar[bool]) -> None:
        self.flag = flag

    def __enter__(self) -> None:
        self.token = self.flag.set(True)

    def __exit__(self, *error: object) -> None:
        self.flag.reset(self.token)


def by_example() -> _during:
    """What is asked meanwhile is answered for the sizes at hand, without a guard: estimates, and
    checks that decide nothing but whether to raise."""
    return _during(checking)


def in_numbers() -> _during:
    """Texts show the sizes at hand, not formulas."""
    return _during(as_numbers)


def whole_of(number: Any) -> int | None:
    """The whole number that a number of another kind is equal to, if any."""
    try:
        whole = int(number.real)
    except (ValueError, OverflowError):  # not finite
        return None
    return whole if whole == number else None


def any_size(size: object) -> TraceError:
    """The error for a question whose answer only a number has."""
    return TraceError(
        f"{size} stands for any size here, and its number is asked for",
        location=locate(2),
        hint="compute with the size itself, loop with gc.fori, or say a number: gc.spec((5,), ...)",
    )


def read_by_user() -> bool:
    """Whether the user's code reads the size whose method asks this, while it is traced."""
    return lifting.get() is not None and not checking.get() and user_asks(2)


# Type checkers see a kind of int; it is none for Python, so that nothing reads the number unasked.
if TYPE_CHECKING:
    _Number = int
else:
    _Number = object


class AsNumber(_Number):
    """What a size answers by its value, as no formula says it.  Traced functions have values;
    elsewhere the number is asked for, but `by_example`.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        """That of the number where the user looks something up; ours are told by identity."""
        if lifting.get() is None or not read_by_user():
            return _identity(self)
        return hash(int(self))

    def _value(self) -> Any:
        lift = None if checking.get() else lifting.get()
        return int(self) if lift is None else lift(self)

    def __and__(self, other: Any) -> Any:
        return self._bits(operator.and_, other)

    def __or__(self, other: Any) -> Any:
        return self._bits(operator.or_, other)

    def __xor__(self, other: Any) -> Any:
        return self._bits(operator.xor, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def _bits(self, combine: Callable[[int, int], int], other: Any) -> Any:
        is_whole = isinstance(other, int | Integral | AsNumber)
        return combine(int(self), int(other)) if is_whole else NotImplemented

    def __getattr__(self, name: str) -> Any:
        """What only a number has: `bit_length` and its like."""
        if name.startswith("_") or not hasattr(int, name):
            raise AttributeError(f"'int' object has no attribute {name!r}", name=name, obj=self)
        return getattr(int(self), name)

    def __rpow__(self, base: Any, modulo: Any = None) -> Any:
        return base ** self._value()

    def __truediv__(self, other: Any) -> Any:
        return self._value() / value_of(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._value()

    def __float__(self) -> float:
        return float(int(self))

    def __lshift__(self, count: Any) -> Any:
        return self * (1 << count)

    def __rshift__(self, count: Any) -> Any:
        return self // (1 << count)

    def __invert__(self) -> Any:
        return -self - 1

    def __round__(self, digits: Any = 0) -> Any:
        return self if digits is None or digits >= 0 else round(int(self), digits)

    def __trunc__(self) -> Any:
        return self

    __floor__ = __ceil__ = __pos__ = __trunc__

    def __str__(self) -> str:
        return str(int(self)) if read_by_user() else repr(self)

    def __format__(self, spec: str) -> str:
        return format(int(self) if read_by_user() else repr(self), spec)


def value_of(value: Any) -> Any:
    """The value of a size; any other value is itself."""
    return value._value() if isinstance(value, AsNumber) else value
