"""Every one of the 2**32 floats through the 16-bit transfer and back.

    python -m benchmarks.compression

Checks of the compiled kernels: NaN stays NaN, infinities and zeros keep their sign, no finite value
becomes infinite (unless it is rounded without saturating), every normal number is within its bound,
compiled and reference agree bit for bit; and how fast it goes.
"""

from __future__ import annotations

import time
from collections import Counter

import numpy as np

import graphc as gc
from graphc.ops.control.transfer_casts import MODES, WORST

CHUNK = 1 << 14  # small enough for the first cache
EXPONENT, PAYLOAD = np.uint32(0x7F800000), 0x007FFFFF


def check(bits: np.ndarray, mode: str, shorten: object, widen: object, found: Counter[str]) -> None:
    """Count what one stretch of floats becomes."""
    x = bits.view(np.float32)
    started = time.perf_counter()
    short = shorten(x)  # type: ignore[operator]
    made = widen(short)  # type: ignore[operator]
    found["microseconds"] += int(1e6 * (time.perf_counter() - started))
    found["differs from the reference"] += int((short != gc.truncate16(x, mode)).sum())
    rest = bits & EXPONENT
    nan, infinite = np.isnan(x), np.isinf(x)
    found["NaN"] += int(nan.sum())
    found["NaN lost"] += int((nan & ~np.isnan(made)).sum())
    found["NaN out of nothing"] += int((~nan & np.isnan(made)).sum())
    found["finite to infinite"] += int((np.isfinite(x) & np.isinf(made)).sum())
    found["infinity changed"] += int((infinite & (made != x)).sum())
    found["sign changed"] += int((np.signbit(x) != np.signbit(made)).sum())
    with np.errstate(all="ignore"):
        outside = np.abs(x - made) > np.float32(WORST[mode]) * np.abs(x)  # both sides are exact
    found["outside the bound"] += int((outside & (rest != 0) & np.isfinite(made)).sum())
    found["denormal to zero"] += int(((rest == 0) & (x != 0) & (made == 0)).sum())


def expected(mode: str) -> dict[str, int]:
    """What the counters must say in the end."""
    return {
        "NaN": 2 * PAYLOAD,
        "NaN lost": 0,
        "NaN out of nothing": 0,
        "finite to infinite": 65_536 if mode == "nearest" else 0,
        "infinity changed": 0,
        "sign changed": 0,
        "outside the bound": 0,
        "differs from the reference": 0,
        "denormal to zero": 2 * (65_535 if mode == "truncate" else 32_768),
    }


def main() -> None:
    failed = False
    for mode in MODES:
        shorten = gc.compile(lambda v, m=mode: gc.truncate16(v, m), threads=1)
        widen = gc.compile(lambda v: gc.widen16(v), threads=1)
        found: Counter[str] = Counter()
        lower = np.arange(CHUNK, dtype=np.uint32)
        for first in range(0, 1 << 32, CHUNK):
            bits = lower + np.uint32(first)
            check(bits, mode, shorten, widen, found)
        rate = (1 << 32) * 12 / found.pop("microseconds") / 1e3
        print(f"{mode}: 4,294,967,296 floats there and back at {rate:.1f} GB/s")
        for name, want in expected(mode).items():
            good = found[name] == want
            failed |= not good
            print(f"  {name:<28}{found[name]:>14,}  {'ok' if good else f'expected {want:,}'}")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
