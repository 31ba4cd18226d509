"""Device functions for the simulator, where pointers are one-dimensional arrays: plain Python that
computes the bits of the compiled ones.
"""

from __future__ import annotations

import math
import threading
import time
from fractions import Fraction
from typing import Any

import numpy as np


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once, for NumPy scalars of one float type."""
    kind = type(x)
    if math.isfinite(x) and math.isfinite(y) and not math.isfinite(z):
        return kind(z)  # whatever the product overflows to
    if not all(math.isfinite(v) for v in (x, y, z)):
        return kind(x * y + z)
    if kind is np.float32:
        product, addend = float(x) * float(y), float(z)
        total = product + addend
        part = total - product
        error = (product - (total - part)) + (addend - part)
        if error and math.isfinite(total):  # round to odd, so that the next rounding cannot err
            toward = math.inf if error > 0 else -math.inf
            if not np.float64(total).view(np.uint64) & np.uint64(1):
                total = math.nextafter(total, toward)
        return np.float32(total)
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    try:
        return kind(float(exact)) if exact else kind(x * y + z)
    except OverflowError:
        return kind(math.inf if exact > 0 else -math.inf)


def load4(pointer: Any, index: int) -> tuple[Any, ...]:
    check_vector(pointer, index)
    return tuple(pointer[index + k] for k in range(4))


def check_vector(pointer: Any, index: int) -> None:
    """A GPU stops where four elements do not lie at a multiple of their size, and so must this."""
    address, nbytes = pointer.ctypes.data + index * pointer.itemsize, 4 * pointer.itemsize
    if address % nbytes:
        raise ValueError(f"{nbytes} bytes at once from address {address:#x}")


def store4(pointer: Any, index: int, x0: Any, x1: Any, x2: Any, x3: Any) -> None:
    check_vector(pointer, index)
    pointer[index : index + 4] = (x0, x1, x2, x3)


def as_array(pointer: Any, count: Any) -> Any:
    return (
        pointer[: math.prod(count)].reshape(count) if isinstance(count, tuple) else pointer[:count]
    )


def as_bools(pointer: Any, count: Any) -> Any:
    return as_array(pointer, count).view(np.bool_)


def offset(pointer: Any, count: int) -> Any:
    return pointer[count:]


def same(a: Any, b: Any) -> bool:
    return bool(a.ctypes.data == b.ctypes.data)


def status_of(code: Any) -> int:
    return 0 if code is None else int(code)


def product(x: Any, y: Any) -> Any:
    return x * y


def sum_of(x: Any, y: Any) -> Any:
    return x + y


# ------------------------------------------------------------------------------------- threads


def take_turns(kind: Any) -> None:
    """Change the class of simulated threads: they run while the simulator asks each whether it
    has ended, tell their block when they have, and warn of no overflow.

    The simulator asks without a pause, which keeps them from running and costs ten times as much.
    """
    ended, run = kind.is_alive, kind.run

    def is_alive(thread: Any) -> bool:
        time.sleep(0)
        return bool(ended(thread))

    def run_to_the_end(thread: Any) -> None:
        try:
            with np.errstate(all="ignore"):
                run(thread)
        finally:
            vars(thread._manager).setdefault("gone", set()).add(thread.thread_id)

    kind.is_alive, kind.run = is_alive, run_to_the_end


def shuffle(x: Any, step: int) -> Any:
    """What the thread whose number differs by the bit `step` passes to this same call, as threads
    of a warp exchange values; x itself if that thread has ended.
    """
    thread: Any = threading.current_thread()
    block = vars(thread._manager)
    passed = block.setdefault("passed", {})
    mine = passed.setdefault(thread.thread_id, [])
    mine.append(x)
    other, gone = thread.thread_id ^ step, block.setdefault("gone", set())
    while len(passed.get(other, ())) < len(mine) and other not in gone:
        time.sleep(0)
    theirs = passed.get(other, ())
    return theirs[len(mine) - 1] if len(theirs) >= len(mine) else x
