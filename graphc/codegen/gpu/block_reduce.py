"""Combining a value over the lanes of a group, so that every lane ends with the same.

    step 4   lanes 0 1 2 3 4 5 6 7        x0+x4 x1+x5 x2+x6 x3+x7 x0+x4 ...
    step 2                                 x0+x4 + x2+x6 ...
    step 1                                 the sum of all eight

In a warp each step exchanges with the lane whose number differs in one bit.  Of a group of several
warps every lane then reads what each of them has made: two barriers, where a butterfly over shared
memory has two for every step.  The order depends on the number of lanes alone.
"""

from __future__ import annotations

from graphc.codegen.python.helpers import storage
from graphc.ir.types import BOOL, DType

_SIGN = {"add": "+", "mul": "*", "and": "&", "or": "|", "xor": "^"}


def group_function(combine: str, dtype: DType, lanes: int, warp: int) -> tuple[str, str]:
    """The name and the source of the function that combines a register over a group.

    `shared` has an element for each warp of a group of several.
    """
    name = f"group_{combine}_{dtype}"
    inside = min(lanes, warp)
    lines = [f"\n@helper\ndef {name}(x, shared):", f"    # Over {lanes} lanes, in each of them."]
    lines.append(
        f"    lanes = np.int64({inside})"
    )  # for plain numbers Numba compiles each exchange
    for halvings in range(1, inside.bit_length()):
        other = f"exchange(x, lanes >> {halvings}, lanes)"
        lines.append(f"    x = {combined(combine, dtype, other)}")
    if lanes > warp:
        lines.append("    cuda.syncthreads()  # what was combined before may still be read")
        lines.append(f"    if cuda.threadIdx.x % {warp} == 0:")
        lines.append(f"        shared[cuda.threadIdx.x // {warp}] = x")
        lines += ["    cuda.syncthreads()", "    x = shared[0]"]
        others = (f"shared[{k}]" for k in range(1, lanes // warp))
        lines += [f"    x = {combined(combine, dtype, other)}" for other in others]
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
