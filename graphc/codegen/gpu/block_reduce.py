"""Combining a value over the lanes of a group: a butterfly, so that every lane ends with the same.

    step 4   lanes 0 1 2 3 4 5 6 7        x0+x4 x1+x5 x2+x6 x3+x7 x0+x4 ...
    step 2                                 x0+x4 + x2+x6 ...
    step 1                                 the sum of all eight

Each step exchanges with the lane whose number differs in one bit.  The order of additions depends
on the number of lanes alone.
"""

from __future__ import annotations

from graphc.codegen.python.helpers import storage
from graphc.ir.types import BOOL, DType

_SIGN = {"add": "+", "mul": "*", "and": "&", "or": "|", "xor": "^"}


def group_function(combine: str, dtype: DType, lanes: int) -> tuple[str, str]:
    """The name and the source of the function that combines a register over a group."""
    name = f"group_{combine}_{dtype}"
    lines = [f"\n@helper\ndef {name}(x, shared):", f"    # Over {lanes} lanes, in each of them."]
    lines.append(f"    lanes = np.int64({lanes})")  # for plain numbers Numba compiles each exchange
    for halvings in range(1, lanes.bit_length()):
        other = f"exchange(x, lanes >> {halvings}, lanes, shared)"
        lines.append(f"    x = {combined(combine, dtype, other)}")
    return name, "\n".join([*lines, "    return x", ""])


def combined(combine: str, dtype: DType, other: str) -> str:
    """`x` together with another lane's value, as source."""
    if combine in ("min", "max"):
        return (
            f"{combine}imum_{dtype}(x, {other})" if dtype.kind == "f" else f"{combine}(x, {other})"
        )
    made = f"x {_SIGN[combine]} {other}"
    narrow = dtype.is_integer and dtype.bits < 64 and dtype is not BOOL
    return f"{storage(dtype)}({made})" if narrow else made
