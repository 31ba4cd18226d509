"""Hand-made kernels and images for the simulator of GPUs (NUMBA_ENABLE_CUDASIM=1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.codegen.native.support import support_object
from graphc.codegen.target import host
from graphc.errors import STATUS
from graphc.gpu import cuda
from graphc.runtime.cuda.simulator import functions
from graphc.runtime.image import Image, Slot
from graphc.runtime.table import TableBuilder


def double(a: Any, b: Any, status: Any, row: Any) -> None:
    i = cuda.grid(1)
    if i < len(b):
        b[i] = a[i] + a[i]


def increment(a: Any, b: Any, status: Any, row: Any) -> None:
    i = cuda.grid(1)
    if i < len(b):
        b[i] = a[i] + 1


def less(a: Any, b: Any, limit: Any, status: Any, row: Any) -> None:
    b[0] = a[0] < limit


def fail(code: Any, status: Any, row: Any) -> None:
    if status[0] == 0:
        status[0] = (row << 32) | code


COUNT = 4
F32 = ("float32", COUNT)
KERNELS = {
    "double": (double, (F32, F32), 0),
    "increment": (increment, (F32, F32), 0),
    "less": (less, (F32, ("bool", 1)), 1),
    "fail": (fail, (), 1),
}
DOUBLE, INCREMENT, LESS, FAIL = range(len(KERNELS))
SLOT = Slot("x", "f32", (COUNT,))


def image(table: TableBuilder, words: Sequence[int] = (0,), **options: Any) -> Image:
    """An image for a simulated GPU: one f32[4] in, one out, unless the options say otherwise."""
    functions.update({name: kernel[:2] for name, kernel in KERNELS.items()})
    given: dict[str, Any] = {
        "params": (SLOT,), "results": (Slot("y", "f32", (COUNT,)),), "arena_bytes": 256,
        "constants": np.zeros(0, np.uint8), "device": "gpu:0", **options,
    }  # fmt: skip
    return Image(
        name="f",
        table=table.finish(),
        words=np.array(words, np.int64),
        kernels=tuple(KERNELS),
        objects=(),
        support=support_object(host()),
        arity=tuple(kernel[2] for kernel in KERNELS.values()),
        reasons=STATUS,
        cpu="simulator",
        triple="cuda",
        **given,
    )
