"""How many bins a histogram has where its data decide that: bins="auto" and other rules.

Each rule gives the width of a bin for n values x (D. Freedman and P. Diaconis, 1981; D. W. Scott,
1979; D. P. Doane, 1976; H. A. Sturges, 1926); a width of 0 means one bin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.errors import TraceError
from graphc.ir.sizes import Size, greatest
from graphc.ir.types import F64, I64
from graphc.ops.record.dims import shape_of, size_of
from graphc.ops.record.families import require
from graphc.ops.record.value import NO_SIZE, as_value, common_element, counting, functions
from graphc.ops.shape.shape import reshape


def _spread(x: Any) -> Any:
    return functions.max(x) - functions.min(x)


def _freedman_diaconis(x: Any, n: Any) -> Any:
    quarters = functions.percentile(x, [75, 25])
    return 2.0 * (quarters[0] - quarters[1]) * n ** (-1.0 / 3.0)


def _sturges(x: Any, n: Any) -> Any:
    return _spread(x) / (functions.log2(n) + 1.0)


def _square_root(x: Any, n: Any) -> Any:
    return _spread(x) / functions.sqrt(n)


def _auto(x: Any, n: Any) -> Any:
    """The lesser of two, the first not below half of what a square root gives."""
    width, sturges = _freedman_diaconis(x, n), _sturges(x, n)
    least = functions.maximum(width, _square_root(x, n) / 2)
    return functions.minimum(least, sturges)


def _doane(x: Any, n: Any) -> Any:
    spread, sigma = _spread(x), functions.std(x)
    usual = functions.sqrt(6.0 * (n - 2) / ((n + 1.0) * (n + 3)))
    scaled = (x - functions.mean(x)) / functions.where(sigma > 0, sigma, 1.0)
    skew = functions.absolute(functions.mean(scaled * scaled * scaled)) / usual
    width = spread / (1.0 + functions.log2(n) + functions.log2(1.0 + skew))
    return functions.where((n > 2) & (sigma > 0), width, 0.0)


RULES: dict[str, Callable[[Any, Any], Any]] = {
    "auto": _auto,
    "doane": _doane,
    "fd": _freedman_diaconis,
    "rice": lambda x, n: _spread(x) / (2.0 * n ** (1.0 / 3)),
    "scott": lambda x, n: (24.0 * 3.141592653589793**0.5 / n) ** (1.0 / 3.0) * functions.std(x),
    "sqrt": _square_root,
    "sturges": _sturges,
}


def bins_by_rule(x: Any, rule: str, range: Any) -> Any:
    """The number of bins of x by a rule of this name, as an extent that the run decides.

    Raises TraceError where none can be, and for "stone", which tries every number.
    """
    hint = f"pass the number of bins, or their edges; outside of loops, {', '.join(RULES)}"
    problem = f"histogram with bins={rule!r} has a number of bins that depends on data"
    if rule not in RULES:
        raise TraceError(problem, hint=hint)
    trace = counting(problem, hint)
    x, f = reshape(as_value(x), -1), functions
    whole = common_element(x)[0].is_integer
    if range is not None:
        require(len(range) == 2, "histogram: a range has two ends")
        x = f.compress(f.logical_and(x >= range[0], x <= range[1]), x)
    count = size_of(shape_of(x))
    if not isinstance(count, Size) and count == 0:
        return 1
    x = f.astype(x, F64)
    width = RULES[rule](x, f.astype(as_value(greatest(count, 1)), F64))
    low, high = (f.min(x), f.max(x)) if range is None else map(float, range)
    width = f.where(width > 0, f.maximum(width, 1.0) if whole else width, 0.0)
    extent = f.where(f.equal(low, high), 1.0, f.subtract(high, low))
    bins = f.ceil(extent / f.where(width > 0, width, extent))
    bins = f.maximum(f.astype(bins, I64), 1)
    is_finite = f.logical_and(f.isfinite(low), f.isfinite(high))
    return trace.data_size("histogram", f.where(is_finite, bins, NO_SIZE))
