"""Hand-made programs for GPUs: images whose kernels are those of the simulator or of a stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from runtime_kernels import DOUBLE as CPU_DOUBLE
from runtime_kernels import INCREMENT as CPU_INCREMENT
from runtime_kernels import image as cpu_image
from runtime_kernels import support

import graphc as gc
from graphc.base.record import replace
from graphc.errors import STATUS
from graphc.runtime.call.execute import Executable
from graphc.runtime.devices.multi_device import MultiDeviceExecutable
from graphc.runtime.load.program import Channel, Image, Slot, StateSlot
from graphc.runtime.load.table import ABSENT, ARENA, TableBuilder

COUNT = 4
NBYTES = 4 * COUNT
ARITY = {"double": 0, "increment": 0, "less": 1, "fail": 1, "store": 1}
DOUBLE, INCREMENT, LESS, FAIL, STORE = range(len(ARITY))
X = np.arange(1, 1 + COUNT, dtype=np.float32)
WHOLE = {"units": 2, "grain": 2}  # two blocks of two threads
ALONE = {"units": 1, "grain": 1}


def vector(name: str, count: int = COUNT) -> Slot:
    return Slot(name, "f32", (count,))


def image(chip: str, table: TableBuilder, words: Sequence[int] = (0,), **options: Any) -> Image:
    """An image for a GPU: one f32[4] in, one out, unless the options say otherwise."""
    simulated = chip == "simulator"
    names = tuple(ARITY)
    given: dict[str, Any] = {
        "params": (vector("x"),),
        "results": (vector("y"),),
        "arena_bytes": 1024,
        "constants": np.zeros(0, np.uint8),
        "device": "gpu:0",
        "objects": () if simulated else ((b"cubin sm_90", names),),
        **options,
    }
    return Image(
        name="f",
        table=table.finish(),
        words=np.array(words, np.int64),
        kernels=names,
        support=support(),
        arity=tuple(ARITY.values()),
        reasons=STATUS,
        cpu=chip,
        triple="cuda",
        **given,
    )


def check(executable: Executable, expected: Any, x: Any = X) -> None:
    for _ in range(4):
        np.testing.assert_array_equal(executable(x), expected)


def twice(chip: str, **options: Any) -> Executable:
    """2 x + 1 through the arena."""
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (ARENA, 0)], **WHOLE)
    table.call(INCREMENT, [(ARENA, 0), (3, 0)], **WHOLE)
    table.end()
    return Executable(image(chip, table, **options))


def counter(home: Any) -> StateSlot:
    gc.Variable(np.zeros(COUNT, np.float32), name="count")
    return StateSlot(vector("count"), home.name, True, True)


def choosing_rounds(chip: str) -> Executable:
    """Double while the first element is less than 100, and add one where it is less than 150."""
    verdict, result, table = (ARENA, 512), (3, 0), TableBuilder()
    table.copy(NBYTES, result, (2, 0))
    top = table.call(LESS, [result, verdict], params=0, **ALONE)
    leave = table.branch(verdict)
    table.call(DOUBLE, [result, (ARENA, 0)], **WHOLE)
    table.copy(NBYTES, result, (ARENA, 0))
    table.jump(top)
    table.patch(leave, table.position)
    table.call(LESS, [result, verdict], params=1, **ALONE)
    skip = table.branch(verdict)
    table.call(INCREMENT, [result, result], **WHOLE)
    end = table.jump()
    table.patch(skip, table.position)
    table.patch(end, table.position)
    table.end()
    return Executable(image(chip, table, [100, 150]))


def chosen_rounds(x: np.ndarray) -> np.ndarray:
    """What `choosing_rounds` computes."""
    while x[0] < 100:
        x = 2 * x
    return x + 1 if x[0] < 150 else x


def pair(
    chip: str, devices: tuple[str, str], *, rounds: int = 0, count: int = COUNT, status: int = 0
) -> MultiDeviceExecutable:
    """The first device doubles x and sends it, the second increments it and sends it back.

    With rounds they do so in a loop, through buffered channels.
    """
    nbytes = 4 * count
    channels = (
        Channel("there", nbytes, 0, 1, rounds > 0),
        Channel("back", nbytes, 1, 0, rounds > 0),
        Channel("go", 0, 0, 1, False),
    )
    images = []
    for number, device in enumerate(devices):
        on_gpu = device.startswith("gpu")
        whole = {"units": count // 2, "grain": 2} if on_gpu else {"units": count}
        table = TableBuilder()
        register = 4 if number == 0 else 2
        if number == 0:
            table.send(0, 2, (ARENA, 0))
            table.copy(nbytes, (ARENA, 0), (2, 0))
        else:
            table.wait(0, 2, (ARENA, 0))
        if rounds:
            table.set(register, (ABSENT, rounds))
        top = table.position
        if number == 0:
            table.call(DOUBLE if on_gpu else CPU_DOUBLE, [(ARENA, 0), (ARENA, nbytes)], **whole)
            table.send(nbytes, 0, (ARENA, nbytes))
            table.wait(nbytes, 1, (ARENA, 0))
        else:
            table.wait(nbytes, 0, (ARENA, 0))
            if status:
                table.call(FAIL if on_gpu else 3, [], **(ALONE if on_gpu else {}))
            table.call(
                INCREMENT if on_gpu else CPU_INCREMENT, [(ARENA, 0), (ARENA, nbytes)], **whole
            )
            table.send(nbytes, 1, (ARENA, nbytes))
        if rounds:
            table.loop(register, top)
        if number == 0:
            table.copy(nbytes, (3, 0), (ARENA, 0))
        table.end()
        options: dict[str, Any] = {
            "arena_bytes": 2 * nbytes,
            "registers": int(rounds > 0),
            "device": device,
            "params": (vector("x", count),) if number == 0 else (),
            "results": (vector("y", count),) if number == 0 else (),
            "words": [status],
            "reasons": STATUS,
        }
        if on_gpu:
            del options["reasons"]
            images.append(image(chip, table, options.pop("words"), **options))
        else:
            images.append(cpu_image(table, **options))
    first = images[0]
    return MultiDeviceExecutable(replace(first, channels=channels, others=(images[1],)))
