"""Is a mutated stage refused, or what the reference interpreter makes of it?"""

from __future__ import annotations

import random
import re
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.hostile import fences
from benchmarks.hostile.models import STATE, Dump, variable
from benchmarks.hostile.mutations import mutated
from benchmarks.hostile.rounding import agree, rounded
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.ir.graph import Graph, Program
from graphc.ir.parse import parse
from graphc.ir.text import show
from graphc.ir.types import Type, leaves
from graphc.ops.reference.interpreter import interpret
from graphc.runtime.call.execute import Executable, stop_all

SECONDS = 3  # of one run, native or interpreted
LARGEST = 1 << 26  # bytes of a value worth running
SIZES = (0, 1, 2, 3, 4, 6, 7, 13, 40)  # of open extents


class TooLong(Exception):
    """An interpretation takes more than its time."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def arguments(value: Graph | Program, seed: int) -> list[np.ndarray[Any, Any]]:
    """Small whole numbers, at the end of a page."""
    numbers = np.random.default_rng(seed)
    sizes: dict[str, int] = {}
    made = []
    for param in value.params:
        assert isinstance(param.type, Type)
        for extent in param.type.shape:
            if not isinstance(extent, int):
                sizes.setdefault(str(extent), int(numbers.choice(SIZES)))
        dims = [n if isinstance(n, int) else sizes[str(n)] for n in param.type.shape]
        drawn = numbers.integers(-2, 3, dims)
        made.append(fences.fenced_copy(np.asarray(drawn).astype(param.type.dtype.numpy)))
    return made


def too_large(value: Graph | Program) -> bool:
    graphs = value.graphs if isinstance(value, Program) else (value,)
    kinds = [kind for g in graphs for n in (*g.params, *g.nodes) for kind in leaves(n.type)]
    static = [kind for kind in kinds if isinstance(kind, Type) and kind.is_static]
    return any(kind.nbytes > LARGEST for kind in static)


def run_fenced(loaded: LoadedGraph, given: list[Any]) -> list[Any]:
    """The results, which are the same whatever memory held before. Raises AssertionError."""
    made = []
    image = loaded.build(*(a.shape for a in given)).image
    for byte in (0xA7, 0x00):
        fences.rubbish = byte
        executable = Executable(image) if not image.others else gc_executable(image)
        variable.assign(STATE)
        timer = threading.Timer(SECONDS, stop_all)
        timer.start()
        try:
            made.append(executable.run([fences.fenced_copy(a) for a in given]))
        finally:
            timer.cancel()
    for first, second in zip(*made, strict=True):
        assert first.tobytes() == second.tobytes(), "a result holds what was never written"
    return made[0]


def gc_executable(image: Any) -> Any:
    from graphc.runtime.devices.multi_device import executable

    return executable(image)


def judge(dump: Dump, text: str, seed: int, level: int = 0) -> str:
    """What became of a mutated stage: refused, equal, or something that must not be."""
    try:
        value = parse(text, dump.tensors)
        if too_large(value):
            return "large"
        loaded = LoadedGraph(value, Config.create(threads=1 + seed % 2, verify=level), dump.stage)
        with fences.everywhere():
            given = arguments(value, seed)
            with alarm(SECONDS):
                value = loaded.bound_to(given)
            if too_large(value):
                return "large"
            made = run_fenced(loaded, given)
    except TooLong:
        return "unjudged: what its sizes are takes too long"
    except GraphError as error:
        return "stopped" if "cancelled" in error.message else "refused"
    try:
        with alarm(SECONDS):
            return compared(value, given, made)
    except (GraphError, TooLong) as error:
        return f"unjudged {str(error)[:100]!r}"


def compared(value: Graph | Program, given: list[Any], made: list[Any]) -> str:
    """Is it what the reference makes of it?"""

    def again(seed: int) -> list[Any]:
        return rounded(value, given, state(), seed)

    want = interpret(value, given, state=state())
    with np.errstate(all="ignore"):
        if agree(made, want, again):
            return "equal"
        finite = all(np.isfinite(x).all() for x in want if np.asarray(x).dtype.kind in "fc")
    # Which rows change places for what is no number is nobody's promise.
    return "unjudged pivots" if "= lu(" in show(value) and not finite else "DIFFERENT"


def state() -> dict[tuple[str, str], Any]:
    return {("main", "hostile"): STATE}


def outcome(seed: int, models: Sequence[str]) -> str:
    """Make mutation number `seed`, run and judge it."""
    try:
        dump, text = mutated(random.Random(seed), models)
    except GraphError:
        return "untyped"
    except Exception:  # noqa: BLE001  (a type rule of the op)
        return f"RULE {last_line()}"
    try:
        return judge(dump, text, seed)
    except MemoryError:
        return "memory"
    except Exception:  # noqa: BLE001  (what must not be: told by its number)
        return f"TRACEBACK {last_line()}"


def last_line() -> str:
    """Where the present exception comes from."""
    rows = traceback.format_exc(limit=-2).splitlines()
    where = [re.sub(r".*/(graphc|benchmarks)/", "", row) for row in rows if "File" in row]
    return f"{rows[-1][:200]} {where[-1:]}"
