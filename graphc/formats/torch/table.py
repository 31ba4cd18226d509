"""The table of operators: a name of PyTorch -> a function.

A rule is a plain function over graphc's public functions whose arguments are called as in the
operator's schema, `self` and `input` being `x`:

    @aten("add")
    def add(x, other, *, alpha=1): ...

It holds for every overload ("add.Tensor", "add.Scalar"), unless one has a rule of its own, and for
the operator that works in place ("add_"), whose result is written to x.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from graphc.base.record import record, replace

Function = Callable[..., Any]


@record(frozen=True)
class Rule:
    """What an operator computes.

    names     of the arguments of its function; None where it takes them in their order alone
    views     its result is memory of its first argument: what is written to one, both see
    copies    its results are copies of such memory
    in_place  its result is written to its first argument, or becomes it where it is a view of it
    """

    function: Function
    names: frozenset[str] | None
    views: bool = False
    copies: bool = False
    in_place: bool = False

    @property
    def takes_call(self) -> bool:
        return self.names is not None and "call" in self.names


RULES: dict[str, Rule] = {}
SAME_NAMES = {"self": "x", "input": "x", "A": "x", "from": "low", "lambda": "lambd"}


def aten(*names: str, views: bool = False, space: str = "aten") -> Callable[[Function], Function]:
    """Enter a function in the table under these names of operators."""

    def enter(function: Function) -> Function:
        known = frozenset(inspect.signature(function).parameters)
        for name in names:
            RULES[f"{space}.{name}"] = Rule(function, known, views)
        return function

    return enter


def ordered(*names: str) -> Callable[[Function], Function]:
    """The same for operators that take their arguments in order: of Python, or of graphs."""

    def enter(function: Function) -> Function:
        named = "call" in inspect.signature(function).parameters
        for name in names:
            RULES[name] = Rule(function, frozenset({"call"}) if named else None)
        return function

    return enter


# Why an operator has no rule, where more is to be said than that: by the name without overloads.
REASONS = {
    "prims.zeta": "Hurwitz's zeta function is none of graphc's",
    "aten.special_zeta": "Hurwitz's zeta function is none of graphc's",
    "aten.special_gammainc": "the incomplete gamma functions are none of graphc's",
    "aten.special_gammaincc": "the incomplete gamma functions are none of graphc's",
    "aten.igamma": "the incomplete gamma functions are none of graphc's",
    "aten.igammac": "the incomplete gamma functions are none of graphc's",
    "aten.linalg_ldl_factor": "symmetric matrices are factored by cholesky, lu_factor or eigh",
    "aten.linalg_ldl_factor_ex": "symmetric matrices are factored by cholesky, lu_factor or eigh",
}


def why_not(target: str) -> str:
    """What a message adds to the name of an operator without a rule."""
    reason = REASONS.get(".".join(target.split(".")[:2]))
    return f": {reason}" if reason else ""


def find(target: str) -> Rule | None:
    """The rule of an operator: "aten.add_.Tensor" is that of "aten.add", in place, and, where they
    have none of their own, "aten.special_sinc.default" is that of "aten.sinc", and
    "aten.split_copy.Tensor" that of "aten.split", as copies."""
    rule = RULES.get(target)
    if rule is not None:
        return rule
    base = ".".join(target.split(".")[:2])
    rule = RULES.get(base)
    if rule is None and base.startswith("aten.special_"):
        return find(target.replace("special_", "", 1))
    if rule is None and base.endswith("_") and not base.endswith("__"):
        pure = find(target.replace(base, base[:-1], 1))
        return None if pure is None else replace(pure, in_place=True)
    if rule is None and base.startswith("aten.") and base.endswith("_copy"):
        view = find(target.replace(base, base.removesuffix("_copy"), 1))
        return None if view is None else replace(view, views=False, copies=True)
    return rule
