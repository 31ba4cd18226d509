"""Ctrl-C stops native loops; handlers of the user's own are respected."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.build import build_image
from graphc.codegen.kernels import spec_of
from graphc.config import Config
from graphc.runtime.load.layouts import FrameWords

ENDLESS = """
import os, signal, threading, time
import numpy as np
import graphc as gc

endless = gc.compile(lambda x: gc.while_loop(lambda s: s > -1, lambda s: s * 0.5, x))
finite = gc.compile(lambda x, n: gc.fori(0, n, lambda i, s: s * 0.5, x))
{handler}
finite(np.float64(8), np.int64(0)), endless(np.float64(-5))  # compiled
try:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    {call}
    print("done")
except BaseException as error:
    print(type(error).__name__)
assert finite(np.float64(8), np.int64(3)) == 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handler", "call", "said"),
    [
        ("", "endless(np.float64(1))", "KeyboardInterrupt"),
        (
            "seen = []; signal.signal(signal.SIGINT, lambda *_: seen.append(print('seen')))",
            "while not seen: finite(np.float64(1), np.int64(60_000_000))",
            "seen\ndone",
        ),
    ],
    ids=["default", "own"],
)
def test_interrupt(handler: str, call: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS.format(handler=handler, call=call)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == said, done.stderr
    assert done.returncode == 0, done.stderr


CLOSED = """
import os
import numpy as np
import graphc as gc

double = gc.compile(lambda x: x + x)
double(np.ones(3))
if {forks} and os.fork() == 0:
    double(np.ones(3))
    raise SystemExit
elif {forks}:
    os.wait()
assert double(np.ones(3))[0] == 2
"""


@pytest.mark.slow
@pytest.mark.parametrize("forks", [False, True])
def test_no_socket_is_open_at_the_end(forks: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", CLOSED.format(forks=forks)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and "socket" not in done.stderr, done.stderr


NEXT = """
import os, signal, threading
import numpy as np
import graphc as gc

finite = gc.compile(lambda x, n: gc.fori(0, n, lambda i, s: s * 0.5, x))
for _ in range(6):  # then the native entry takes over
    finite(np.float64(8), np.int64(30_000))


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


for k in range(60):
    thread = threading.Thread(target=interrupt)
    raised = 0
    try:
        if k % 2:
            thread.start()
            while True:
                finite(np.float64(8), np.int64(2_000))
        interrupt()
        while True:
            pass
    except KeyboardInterrupt:
        raised += 1
    finite(np.float64(8), np.int64(30_000))
    thread.join() if k % 2 else None
    assert raised == 1
print("done")
"""


def test_an_interrupt_does_not_stop_the_next_run() -> None:
    done = subprocess.run([sys.executable, "-c", NEXT], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "done", done.stderr


def test_runs_that_began_after_a_signal_go_on() -> None:
    executable = gc.compile(lambda x: x * 2).executable(np.ones(3))
    frame, _ = executable.begin([np.ones(3)])
    begun = int(frame.words[FrameWords.begun])
    executable.cancel(begun - 1)
    assert frame.words[FrameWords.cancel] == 0
    executable.cancel(begun)
    assert frame.words[FrameWords.cancel] == 1
    executable.give(frame)


HUGE = """
import os, signal, sys, threading
import numpy as np
import graphc as gc
from graphc.config import Config
from graphc.frontend.files.loaded_graph import LoadedGraph

call = LoadedGraph(gc.parse(sys.argv[1]), Config.create(backend=sys.argv[2]))
arrays = [np.ones(kind.dims, kind.dtype.numpy) for kind in call.types]
call.build()
try:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    call(*arrays)
    print("done")
except BaseException as error:
    print(type(error).__name__)
"""
SUM = "%1 = sum(%0) {axes=[0], keepdims=false}"
ENDLESS_UNITS = {
    "reduction": f"""graph @f() {{
      %0 = iota() {{extent={2**47}, dtype=i64}} : i64[{2**47}]
      {SUM} : i64[]
      return %1
    }}""",
    "columns": f"""graph @f(%9 x: f32[4]) {{
      %8 = broadcast(%9) {{dims=[{2**45},4]}} : f32[{2**45},4]
      %0 = tanh(%8) : f32[{2**45},4]
      {SUM} : f32[4]
      return %1
    }}""",
    "product": f"""graph @f(%8 x: f32[{2**23},1], %9 y: f32[1,{2**23}]) {{
      %7 = matmul(%8, %9) : f32[{2**23},{2**23}]
      %0 = tanh(%7) : f32[{2**23},{2**23}]
      {SUM.replace("[0]", "[0,1]")} : f32[]
      return %1
    }}""",
}


# Numba's LLVM knows the sum of a range without adding it up.
CASES = [*((name, "llvm") for name in ENDLESS_UNITS), ("columns", "numba")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), CASES)
def test_interrupt_of_one_huge_kernel(name: str, backend: str) -> None:
    """Each would run for hours in one unit of work."""
    done = subprocess.run(
        [sys.executable, "-c", HUGE, ENDLESS_UNITS[name], backend],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "KeyboardInterrupt", done.stderr


def test_only_units_that_take_long_look_at_the_flag() -> None:
    def looked(n: int) -> int:
        call = gc.compile(lambda x: np.tanh(x).sum(1), threads=1)
        stages = call.stages(gc.spec((4, n), "f32"))
        _, made = build_image(stages[-1].value, Config.create(threads=1))
        return sum("load atomic" in text for text in made.texts.values())

    assert looked(1 << 16) == 0
    assert looked(1 << 26) > 0


def test_kernels_that_look_themselves_are_not_cut() -> None:
    """Cut by columns, a scatter into a large table takes them one by one: 30 times as long."""

    def added(x, ids, y):
        total = x.copy()
        np.add.at(total, ids, y)
        return total

    def polls(function, *kinds):
        call = gc.compile(function, threads=1)
        graph = call.stages(*(gc.spec(*kind) for kind in kinds))[-1].value.graphs[0]
        config = Config.create(threads=1)
        return [spec_of(n, config).poll for n in graph.nodes if n.op.traits.kernel]

    rows = 1 << 22
    scattered = ((rows, 64), "f32"), ((100,), "i32"), ((100, 64), "f32")
    assert not any(polls(added, *scattered))
    assert any(polls(lambda a: np.linalg.svd(a)[1], ((rows, 4, 4), "f64")))
