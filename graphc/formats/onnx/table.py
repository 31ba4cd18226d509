"""The table of operators: (domain, name) and the version since which it holds -> a function.

A rule is a plain function over graphc's public functions: inputs are positional (None for one that
is left out), attributes are keywords with the defaults of the format, results are what it returns.

    @operator("LeakyRelu")
    def leaky_relu(x, *, alpha=0.01): ...

What it emits is traced like any other code.  A rule that takes `call` gets its node and may run
the graphs in its attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.base.record import record

Function = Callable[..., Any]
FIRST, ALL = slice(1), slice(None)  # inputs that an operator moves about
MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"


@record(frozen=True)
class Rule:
    """What an operator is from a version on.

    takes_call   its function wants the node, too
    folds        on values that are known while tracing it may be computed at once
    moves        which of its inputs it only moves about, whatever their elements are
    carried      it takes strings and narrow elements as they are carried
    spells       it looks into the strings that it is given, or makes new ones
    """

    function: Function
    since: int
    takes_call: bool
    folds: bool
    moves: slice | None
    carried: bool
    spells: bool


TABLE: dict[tuple[str, str], list[Rule]] = {}


def operator(
    *names: str,
    domain: str = "",
    since: int = 1,
    folds: bool = True,
    moves: slice | None = None,
    carried: bool = False,
    spells: bool = False,
) -> Callable[[Function], Function]:
    """Enter a function in the table under these operator names."""

    def enter(function: Function) -> Function:
        code = function.__code__
        keywords = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for name in names:
            rules = TABLE.setdefault((domain, name), [])
            rules.append(Rule(function, since, "call" in keywords, folds, moves, carried, spells))
            rules.sort(key=lambda rule: -rule.since)
        return function

    return enter


def find(domain: str, name: str, version: int) -> Rule | None:
    """The rule of an operator in a version of its domain."""
    rules = TABLE.get((domain, name), ())
    return next((rule for rule in rules if rule.since <= version), None)
