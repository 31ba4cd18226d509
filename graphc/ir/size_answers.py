"""How a size answers: by its value at hand, in numbers, or to NumPy's functions with a formula."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

checking: ContextVar[bool] = ContextVar("checking", default=False)
as_numbers: ContextVar[bool] = ContextVar("as_numbers", default=False)

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
