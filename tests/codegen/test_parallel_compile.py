"""Compiling in several threads: what comes out, what fails, and what an interrupt leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen import cache
from graphc.codegen.llvm import parallel_compile as jobs
from graphc.codegen.llvm import target
from graphc.codegen.llvm.objects import Piece, grouped, objects_of
from graphc.codegen.llvm.parallel_compile import together
from graphc.codegen.llvm.target import host
from graphc.codegen.tuning import tuned


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "processors", lambda: 4)


TEXT = "define i64 @k{0}(i64 %x) {{\n  %y = mul i64 %x, {0}\n  ret i64 %y\n}}\n"


def piece(number: int, text: str = "") -> Piece:
    return Piece(f"k{number}", f"key{number}", text or TEXT.format(number))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_are_in_order(threads: int) -> None:
    both = threading.Barrier(min(threads, 4), timeout=300)

    def job(number: int) -> tuple[int, threading.Thread]:
        if number < min(threads, 4):
            both.wait()  # the first ones run at the same time, each in a thread of its own
        return number, threading.current_thread()

    made = together([lambda n=n: job(n) for n in range(9)], threads)  # type: ignore[misc]
    assert [number for number, _ in made] == list(range(9))
    assert len({thread for _, thread in made}) <= min(threads, 4)
    assert all(not t.is_alive() for _, t in made if t is not threading.current_thread())


def test_the_first_failure_is_raised() -> None:
    late = threading.Event()

    def first() -> None:
        assert late.wait(300)
        raise KeyError("first")

    def second() -> None:
        late.set()
        raise ValueError("second")

    started: list[int] = []
    with pytest.raises(KeyError, match="first"):
        together([first, second, *[lambda: started.append(1)] * 3], 2)
    assert not started
    assert together([], 2) == []


def test_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "processors", lambda: 1)
    assert together([threading.current_thread] * 3, 2) == [threading.current_thread()] * 3


def test_a_system_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert together([lambda: 1, lambda: 2], 2) == [1, 2]


def test_objects_do_not_depend_on_the_threads() -> None:
    pieces = [piece(n, TEXT.format(n) + "; " + "x" * (tuned.object_text // 3)) for n in range(7)]
    alone = objects_of(pieces, host(), 2, 1)
    for threads in (2, 4):
        assert objects_of(pieces, host(), 2, threads) == alone
    assert len(alone[1]) == 4
    assert sorted(p.symbol for _, group in alone[1] for p in group) == [f"k{n}" for n in range(7)]


def test_what_lies_in_one_object() -> None:
    large = piece(1, "x" * (tuned.object_text + 1))
    user = piece(2, "call i32 @graphc_contract_f32_4_fused(ptr %a)")
    assert grouped([piece(3), user, large, piece(4)]) == [[large], [piece(3)], [piece(4)], [user]]
    assert grouped([piece(3), piece(4), user]) == [[piece(3), piece(4)], [user]]
    assert grouped([]) == []


def test_much_text_makes_objects_enough_for_all_threads_and_few_more() -> None:
    text = "x" * (tuned.object_text // 2)
    pieces = [piece(n, text) for n in range(100 * tuned.compile_threads)]
    groups = grouped(pieces)
    assert {len(group) for group in groups} == {50}
    assert len(groups) == 2 * tuned.compile_threads
    assert [p for group in groups for p in group] == pieces


def test_who_calls_a_function_of_a_core_lies_apart_from_who_calls_none() -> None:
    caller = piece(2, "call void @graphc_core_f64_narrow_8(ptr %a)")
    weak = piece(3, "declare extern_weak void @graphc_core_f64_narrow_8()")
    assert grouped([weak, caller]) == [[weak], [caller]]


def test_a_text_that_llvm_refuses() -> None:
    with pytest.raises(RuntimeError, match=r"parsing error(.|\n)*expected"):
        objects_of([piece(1, "define nonsense"), piece(2)], host(), 2, 2)


def test_the_same_image_with_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        return gc.softmax(gc.relu(x @ w + b)), (x * 2).sum(axis=1)

    arguments = [np.ones(shape, np.float32) for shape in ((20, 30), (30, 40), (40,))]
    images = []
    for threads in (2, 3, 3):  # the last finds all of it in the cache
        monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / str(threads)))
        function = gc.compile(layer, threads=threads)
        function(*arguments)
        image = function.executable(*arguments).image
        images.append((image.objects, image.support))
    assert images[0] == images[1] == images[2]
    assert len(images[0][0]) > 1
    assert cache.default().size() > 0


def test_a_code_generator_belongs_to_a_thread() -> None:
    own = target.machine(host())
    assert target.machine(host()) is own
    (other,) = together([lambda: target.machine(host())], 1)
    assert other is own
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(target.machine(host())))
    thread.start()
    thread.join()
    assert found[0] is not own


INTERRUPT = """
import os, signal, threading, time
from graphc.codegen.llvm import parallel_compile as jobs
from graphc.codegen.llvm.parallel_compile import together

jobs.processors = lambda: 2

began, released = threading.Barrier(2), threading.Event()

def endure():
    began.wait()
    released.wait()
    print("helper done")

def interrupted():
    began.wait()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(300)

def either():
    (interrupted if threading.current_thread() is threading.main_thread() else endure)()

try:
    together([either, either, lambda: print("never")], 2)
except KeyboardInterrupt:
    print("stopped")
    released.set()
"""


def test_an_interrupt_waits_for_no_helper() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split("\n") == ["stopped", "helper done", ""], done.stderr
    assert done.returncode == 0, done.stderr


FORK = """
import os, signal, sys, threading, time
from llvmlite import binding as llvm
from llvmlite.binding import ffi
import graphc

if sys.argv[1] == "numba":
    from numba.core.compiler_lock import global_compiler_lock as lock
else:
    lock = ffi.lib._lock
entered = threading.Event()

def call():
    with lock:
        entered.set()
        time.sleep(0.3)

thread = threading.Thread(target=call)
thread.start()
entered.wait()
child = os.fork()
if not child:
    signal.alarm(60)
    with lock:
        llvm.create_context()
    os._exit(0)
thread.join()
llvm.create_context()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
@pytest.mark.parametrize("compiler", ["llvm", "numba"])
def test_a_forked_child_compiles_although_another_thread_was_inside(compiler: str) -> None:
    command = [sys.executable, "-c", FORK, compiler]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == "0\n", done.stderr


FORK_AT_WORK = """
import os, signal, threading
from graphc.codegen.llvm.target import host, machine

own, theirs = machine(host()), []
made, forked = threading.Event(), threading.Event()

def work():
    theirs.append(machine(host()))
    made.set()
    forked.wait()

thread = threading.Thread(target=work)
thread.start()
made.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    found = []
    thread = threading.Thread(target=lambda: found.append(machine(host())))
    thread.start()
    thread.join()
    os._exit(found[0] in theirs)
forked.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_forked_child_takes_no_code_generator_that_was_at_work() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK_AT_WORK], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "0\n", done.stderr


LEFT_LOCKED = """
import sys
from llvmlite.binding import ffi
from graphc.codegen.llvm import parallel_compile as jobs
from graphc.codegen.llvm.objects import Piece, objects_of
from graphc.codegen.llvm.target import host

jobs.processors = lambda: 2
ffi.lib._lock.__enter__()  # an interrupt came before the call that this was for
text = "define i64 @k{0}(i64 %x) {{\\n  ret i64 {0}\\n}}\\n; " + 16_000 * "x"
print(len(objects_of([Piece(f"k{n}", "", text.format(n)) for n in range(8)], host(), 2, 2)[1]))
"""


def test_llvm_is_not_locked_for_ever_by_an_interrupt() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_LOCKED], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "8\n", done.stderr


FORK_WHILE_TRACED = """
import os, signal, threading
import numpy as np
import graphc as gc

inside, forked = threading.Event(), threading.Event()
tracer = []

def double(x):
    if threading.current_thread() in tracer:
        inside.set()
        forked.wait()
    return x * 2

compiled = gc.compile(double)
x = np.ones(3, np.float32)
tracer.append(threading.Thread(target=compiled, args=(x,)))
tracer[0].start()
inside.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    os._exit(int(compiled(x).sum()))
forked.set()
tracer[0].join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), compiled(x).sum())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_forked_child_calls_a_function_that_another_thread_was_tracing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK_WHILE_TRACED], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "6 6.0\n", done.stderr
