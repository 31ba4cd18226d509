"""Operators on lists of tensors, which optimisers are written in.

_foreach_addcmul(x, y, z, value)   ->   [addcmul(x[k], y[k], z[k], value) for every k]
"""

from __future__ import annotations

from typing import Any

from graphc.errors import GraphError
from graphc.formats.torch.table import RULES, SAME_NAMES, Rule, find

# Those that are not called as the operator of one tensor is.
_CALLED = {"norm": "linalg_vector_norm"}
_NAMES = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min",
    "copy", "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma",
    "log", "log10", "log1p", "log2", "max", "maximum", "minimum", "mul", "neg", "norm", "pow",
    "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan", "tanh",
    "trunc", "zero",
)  # fmt: skip
_SHARED = {"alpha", "dtype", "non_blocking"}  # given by name


def _each(name: str) -> Any:
    """The operator of lists that applies one to their elements, numbers being for all of them."""

    def operator(*operands: Any, call: Any) -> list[Any]:
        titles = [SAME_NAMES.get(title, title) for title, _ in call.node.inputs]
        rule = find(f"aten.{name}")
        assert rule is not None
        lists = [value for value in operands if isinstance(value, list)]
        if len({len(value) for value in lists}) != 1:
            raise GraphError(f"lists of {[len(value) for value in lists]} tensors")
        made = []
        for k in range(len(lists[0])):
            pairs = zip(titles, operands)
            given = [v[k] if isinstance(v, list) or t == "scalars" else v for t, v in pairs]
            named = {
                t: v for t, v in zip(titles, given) if t in _SHARED and t in (rule.names or ())
            }
            plain = [v for t, v in zip(titles, given) if t not in _SHARED]
            made.append(rule.function(*plain, **named))
        return made

    return operator


for _name in _NAMES:
    _rule = _each(_CALLED.get(_name, _name))
    RULES[f"aten._foreach_{_name}"] = Rule(_rule, frozenset({"call"}))
