"""Measures the vector math functions and writes docs/ulp.md.

python tests/support/ulp_table.py [points]
"""

from __future__ import annotations

import sys

import numpy as np
from project import ROOT
from vecmath_reference import arity, edges, operations, points, reference, run, ulp_errors

from graphc.ir.types import F32, F64
from graphc.loops.vecmath import FUNCTIONS

LEFT_OF_ZERO = {"lgamma", "digamma"}
BELOW_ZERO = {"exp_below_zero"}
SKIPPING = {"exp", "pow", "sin", "cos", "tan"}
HEAD = """# Accuracy of the vector math functions

Largest error found, in units of the last place of the exact result (0.5 is correct rounding), over
random bit patterns, linear ranges up to 700, every power of two from 2^-30 to 2^12 and values close
to 1. f32: {single:,} points against float64; f64: {double:,} points against mpmath. Both types take
the whole range of the type, denormals included, as argument and result. "Ops" is the number of
instructions; vectors skip those that only large arguments and the ends of the range need (exp, pow,
sin, cos, tan), if no element of theirs is one. These five are also measured at twice as many points
for results of any magnitude, arguments of any magnitude and close to multiples of pi / 4. Written
by `python tests/support/ulp_table.py`.

| function | f32 | f64 | ops f32 | ops f64 | note |
|---|---|---|---|---|---|
"""
NOTES = {
    "digamma": "x > 0; left of zero see below",
    "exp_below_zero": "x <= 0",
    "lgamma": "x > 0; left of zero see below",
    "logaddexp": "where the sum cancels: in ulp of the operand of larger magnitude",
    "sin": "any magnitude of x",
    "cos": "any magnitude of x",
    "tan": "any magnitude of x",
    "pow": "special cases as C99 annex F",
}


def measure(name: str, kind: type, count: int, seed: int = 1) -> tuple[float, list[np.ndarray]]:
    """The largest error and where it is."""
    arrays = [points(kind, count, seed + k) for k in range(arity(name))]
    if name in SKIPPING:
        more = edges(name, kind, 2 * count, seed)
        arrays = [np.concatenate(pair) for pair in zip(arrays, more, strict=True)]
    if name in LEFT_OF_ZERO:
        arrays = [np.abs(arrays[0])]
    if name in BELOW_ZERO:
        arrays = [-np.abs(arrays[0])]
    arrays = arrays if kind is np.float32 else [np.where(np.isfinite(a), a, 1) for a in arrays]
    scale: np.ndarray | float = 0.0
    if name == "logaddexp":
        scale = np.nan_to_num(np.fmax(*map(np.abs, arrays)), posinf=1.0).astype(np.float64)
    errors = ulp_errors(run(name, *arrays), reference(name, arrays), scale)
    worst = int(errors.argmax())
    return float(errors[worst]), [a[worst : worst + 1] for a in arrays]


def measure_left(name: str, kind: type, count: int, low: float) -> float:
    """lgamma, digamma for low < x < 0: the error in units of the last place of max(1, |exact|)."""
    random = np.random.default_rng(7)
    x: np.ndarray = random.uniform(low, 0, count).astype(kind)
    return float(ulp_errors(run(name, x), reference(name, [x]), 1.0).max())


def table(single: int, double: int) -> str:
    lines = [HEAD.format(single=single, double=double)]
    for name in sorted(FUNCTIONS):
        f32, f64 = measure(name, np.float32, single)[0], measure(name, np.float64, double)[0]
        counts = f"{operations(name, F32)} | {operations(name, F64)}"
        lines.append(f"| {name} | {f32:.2f} | {f64:.2f} | {counts} | {NOTES.get(name, '')} |\n")
    lines.append(
        "\nLeft of zero lgamma and digamma have a root between any two poles, where no digit of a"
        "\nrelative error would mean anything. In units of the last place of max(1, |exact|) on"
        "\n(-100, 0):\n\n"
    )
    for name in sorted(LEFT_OF_ZERO):
        f32 = measure_left(name, np.float32, single, -100.0)
        f64 = measure_left(name, np.float64, double, -100.0)
        lines.append(f"* {name}: f32 {f32:.1f}, f64 {f64:.1f}\n")
    return "".join(lines)


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    text = table(size, size // 100)
    ROOT.joinpath("docs", "ulp.md").write_text(text)
    sys.stdout.write(text)
