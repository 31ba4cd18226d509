"""gc.print, gc.assert_, gc.summary and gc.callback: random programs call Python as often as, and
in the order in which, plain Python would; however they are compiled, placed and differentiated."""

# ruff: noqa: PT009 gc.assert_ is what is tested

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.ops.reference.interpreter import interpret

Statement = tuple[Any, ...]
SEEDS = range(int(os.environ.get("GRAPHC_OUTSIDE_SEEDS", "12")))
FORMS = ("branch", "scan", "while", "fori", "call", "choose", "checkpoint")


def program(draw: random.Random, depth: int = 0) -> list[Statement]:
    """Statements on one number: arithmetic, calls of Python, and regions that hold statements."""
    found: list[Statement] = []
    for _ in range(draw.randint(1, 3)):
        kind = draw.choice(
            ("summary", "call", "assert", "value", "add", *(FORMS if depth < 3 else ()))
        )
        if kind in ("branch", "choose"):
            found.append((kind, program(draw, depth + 1), program(draw, depth + 1)))
        elif kind in FORMS:
            found.append((kind, draw.randint(0, 2), program(draw, depth + 1)))
        else:
            found.append((kind, draw.randint(0, 99)))
    return found


class Plain:
    """What a program does in plain Python: the value that is left, and what it told on its way."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def run(self, statements: list[Statement], x: float) -> float:
        for statement in statements:
            x = self.step(statement, x)
        return x

    def step(self, statement: Statement, x: float) -> float:
        match statement:
            case "summary" | "call", k:
                self.log.append(f"{k}: {x}")
            case "value", k:
                self.log.append(f"value {x}")
                return x + k
            case "add", k:
                return x + k
            case "branch" | "choose", yes, no:
                return self.run(yes if x > 50 else no, x)
            case "checkpoint" | "call", _, body:
                return self.run(body, x)
            case _, count, body:
                for _ in range(count):
                    x = self.run(body, x)
        return x


class Traced:
    """The same program for a trace; what it calls and summarises fills the log."""

    latest: Traced

    def __init__(self, devices: int = 1) -> None:
        self.log: list[str] = []
        self.devices = devices
        Traced.latest = self

    def note(self, k: Any, x: Any) -> None:
        self.log.append(f"{k}: {x}")

    def number(self, x: Any, k: Any) -> Any:
        self.log.append(f"value {x}")
        return np.float64(k)

    def run(self, statements: list[Statement], x: Any) -> Any:
        for number, statement in enumerate(statements):
            if self.devices == 1:
                x = self.step(statement, x)
                continue
            with gc.device(f"cpu:{number % self.devices}"):
                x = self.step(statement, x)
        return x

    def step(self, statement: Statement, x: Any) -> Any:
        match statement:
            case "summary", k:
                gc.summary.scalar(f"{k}", x)
            case "call", k:
                gc.callback(self.note, None, k, x)
            case "assert", k:
                gc.assert_(x < 1e9, "too much", x)
            case "value", k:
                return x + gc.callback(self.number, gc.spec((), "f64"), gc.stop_gradient(x), k)
            case "add", k:
                return x + k
            case "branch", yes, no:
                return gc.cond(x > 50, lambda x: self.run(yes, x), lambda x: self.run(no, x), x)
            case "choose", yes, no:
                branches = [lambda x: self.run(no, x), lambda x: self.run(yes, x)]
                return gc.switch((x > 50).astype("i32"), branches, x)
            case "scan", count, body:
                return gc.scan(lambda x, _: (self.run(body, x), x), x, None, length=count)[0]
            case "fori", count, body:
                return gc.fori(0, count, lambda k, x: self.run(body, x), x)
            case "while", count, body:
                return gc.while_loop(
                    lambda state: state[1] < count,
                    lambda state: (self.run(body, state[0]), state[1] + 1),
                    (x, np.int64(0)),
                )[0]
            case "checkpoint", _, body:
                if any(inner[0] == "value" for inner in deep(body)):
                    return self.run(body, x)  # its results cannot be had again
                return gc.checkpoint(lambda x: self.run(body, x))(x)
            case "call", _, body:
                return gc.compile(lambda x: self.run(body, x))(x)
        return x


class Writer:
    """Summaries go into the log of the latest program."""

    def write(self, entry: Any) -> None:
        Traced.latest.log.append(f"{entry.tag}: {entry.value}")

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def recorded() -> Iterator[None]:
    with gc.summary.to(Writer()):
        yield


def deep(statements: list[Statement]) -> list[Statement]:
    inside = [deep(part) for s in statements for part in s[1:] if isinstance(part, list)]
    return [*statements, *(inner for part in inside for inner in part)]


def expected(statements: list[Statement], x: float) -> tuple[float, list[str]]:
    plain = Plain()
    return plain.run(statements, np.float64(x)), plain.log


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_come_in_program_order(seed: int) -> None:
    draw = random.Random(seed)
    statements = program(draw)
    for options in (
        {"opt": 0, "threads": 1},
        {"opt": 2, "threads": 2},
        {"devices": ["cpu:0", "cpu:1"]},
    ):
        traced = Traced(len(options.get("devices", [0])))
        run = gc.compile(lambda x, traced=traced: traced.run(statements, x), **options)
        for x in (0.0, 60.0, 0.0):
            value, log = expected(statements, x)
            traced.log.clear()
            assert run(np.float64(x)) == value
            assert traced.log == log
            traced.log.clear()
            assert interpret(run.graph(np.float64(x)), [np.float64(x)]) == [value]
            assert traced.log == log


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gradient_calls_once(seed: int) -> None:
    draw = random.Random(seed)
    statements = program(draw)
    traced = Traced()
    loss = gc.value_and_grad(lambda x: traced.run(statements, x) * x)
    run = gc.compile(loss, opt=draw.choice((0, 2)))
    for x in (1.0, 60.0):
        value, log = expected(statements, x)
        traced.log.clear()
        made, gradient = run(np.float64(x))
        assert (made, gradient) == (value * x, value + x)
        assert traced.log == log
        traced.log.clear()
        interpret(run.graph(np.float64(x)), [np.float64(x)])
        assert traced.log == log


@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_of_other_kinds_call_once(seed: int) -> None:
    draw = random.Random(seed)
    statements = [s for s in program(draw) if not any(i[0] == "value" for i in deep([s]))]
    traced = Traced()

    def square(x: Any) -> Any:
        return traced.run(statements, x) * x

    x = np.float64(draw.choice((1.0, 60.0)))
    value, log = expected(statements, x)
    derivatives: list[tuple[Callable[[], Any], Any]] = [
        (lambda: gc.jvp(square, (x,), (np.float64(1),))[1], value + x),
        (lambda: gc.jacobian(square)(x), value + x),
        (lambda: gc.hessian(square)(x), 2),
        (lambda: gc.grad(gc.grad(square))(x), 2),
        (lambda: gc.vjp(square, x)[1](np.float64(1))[0], value + x),
    ]
    for derive, result in derivatives:
        traced.log.clear()
        assert derive() == result
        assert traced.log == log


def test_print_writes_values_and_formats(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(x: Any, n: Any) -> Any:
        gc.print("x = {}, {{n}} = {:03d}, {:.2f}", x, n, x[0])
        return x

    x = np.array([1.5, 2.0])
    for run in (shown, gc.compile(shown), gc.compile(shown, opt=0)):
        run(x, np.int64(7))
        assert capsys.readouterr().out == "x = [1.5 2. ], {n} = 007, 1.50\n"


MISFITS = ["{}", "{0}", "{} {}", "{.shape}", "{0.__class__}", "{!r}", "{:{}}", "{:.3f}", "{", "}"]


@pytest.mark.parametrize("text", MISFITS)
@pytest.mark.parametrize("name", ["print", "assert"])
def test_a_text_that_does_not_fit_is_refused(name: str, text: str) -> None:
    values = () if text == "{}" else (np.zeros(3),)

    def call(x: Any) -> Any:
        if name == "print":
            gc.print(text, *values)
        else:
            gc.assert_(x < 1, text, *values)
        return x

    with pytest.raises(gc.GraphError, match=name):
        gc.compile(call)(np.zeros(2))


@pytest.mark.parametrize("spec", ["1000d", "099999999999d", "d", "q", ".1000f"])
def test_a_number_format_that_does_not_fit_is_refused(spec: str) -> None:
    with pytest.raises(gc.TypeRuleError, match="format"):
        gc.print(f"{{:{spec}}}", np.float64(1))
    with pytest.raises(gc.TypeRuleError, match="format"):
        gc.assert_(True, f"{{:{spec}}}", np.float64(1))


def test_the_message_of_an_assertion_is_formatted_when_it_fails() -> None:
    def checked(x: Any, step: Any) -> Any:
        gc.assert_(x < 2, "{{x}} at {:03d} is {:.2f}, of {}", step, x.sum(), x, x.max())
        return x

    x, step = np.array([1.0, 2.5]), np.int64(7)
    for run in (checked, gc.compile(checked), gc.compile(checked, opt=0)):
        assert run(x - 1, step) is not None
        with pytest.raises(gc.RunError) as caught:
            run(x, step)
        lines = str(caught.value).splitlines()
        assert lines[0] == "{x} at 007 is 3.50, of [1.  2.5]"
        assert [line for line in lines if "value" in line] == ["  value 3: 2.5"]


@pytest.mark.parametrize("dtype", ["bool", "i8", "u64", "f16", "bf16", "f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_callbacks_take_and_give_every_dtype(dtype: str, shape: tuple[int, ...]) -> None:
    kind = gc.spec(shape, dtype)
    x = np.ones(shape, kind.dtype.numpy)
    seen: list[Any] = []

    def same(a: Any) -> Any:
        seen.append(a)
        return {"b": a, "a": (a, np.int32(a.size))}

    @gc.compile
    def run(x: Any) -> Any:
        specs = {"b": kind, "a": (kind, gc.spec((), "i32"))}
        return gc.callback(same, specs, x)

    made = run(x)
    for array in (seen[0], made["b"], made["a"][0]):
        assert array.dtype == x.dtype and array.shape == shape and np.array_equal(array, x)
    assert made["a"][1] == x.size
    seen[0][...] = 0  # a copy of its own
    assert np.array_equal(x, np.ones(shape, x.dtype))


@pytest.mark.parametrize("devices", [["cpu:0"], ["cpu:0", "cpu:1"]])
def test_errors_have_the_line_and_the_cause(devices: list[str]) -> None:
    def fail(x: Any) -> Any:
        raise KeyError("nothing there")

    @gc.compile(devices=devices)
    def calls(x: Any) -> Any:
        with gc.device(devices[-1]):
            return gc.callback(fail, gc.spec((), "f64"), x)

    @gc.compile(devices=devices)
    def asserts(x: Any) -> Any:
        gc.assert_(x < 2, "x is too large", x, x.sum())
        return x

    here = calls.__wrapped__.__code__.co_firstlineno if hasattr(calls, "__wrapped__") else 0
    for _ in range(3):
        with pytest.raises(gc.RunError, match="the callback fail raised KeyError") as caught:
            calls(np.float64(1))
        assert isinstance(caught.value.__cause__, KeyError)
        assert caught.value.location is not None and "test_host_calls" in caught.value.location[0]
        assert not here or caught.value.location[1] == here + 3
        with pytest.raises(gc.RunError, match="x is too large") as caught:
            asserts(np.arange(4.0))
        assert caught.value.details == ("value 0: [0. 1. 2. 3.]", "value 1: 6.0")
        assert asserts(np.ones(4)).tolist() == [1] * 4
    with pytest.raises(gc.RunError, match="x is too large"):
        interpret(asserts.graph(np.arange(4.0)), [np.arange(4.0)])


def test_an_assertion_of_a_lane_has_its_line() -> None:
    def root(x: Any) -> Any:
        gc.assert_(x > 0, "not positive", x)
        return np.sqrt(x)

    with pytest.raises(gc.RunError, match=r"not positive\n.*test_host_calls.py:\d+\n.*value 0: 0"):
        gc.compile(gc.vmap(root))(np.arange(3.0))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: gc.print("{}", x, end=""),  # type: ignore[call-arg]
        lambda x: gc.assert_(x > 0, text="positive"),  # type: ignore[call-arg]
        lambda x: gc.callback(np.sort, None, x, name="sort"),  # type: ignore[call-arg]
    ],
)
def test_keywords_that_they_do_not_have_are_refused(call: Callable[[Any], Any]) -> None:
    for function in (call, gc.compile(call)):
        with pytest.raises(gc.GraphError, match="unexpected keyword argument"):
            function(np.ones(3))


def test_results_that_do_not_fit_the_specs_are_errors() -> None:
    for made in (np.zeros(2, "f4"), np.zeros(3), [np.zeros(2)], None, 1.0, "no"):
        run = gc.compile(lambda x, made=made: gc.callback(lambda x: made, gc.spec((2,), "f64"), x))
        with pytest.raises(gc.RunError, match="callback"):
            run(np.zeros(1))
    with pytest.raises(gc.TraceError, match="specs"):
        gc.callback(abs, np.zeros(2), 1.0)
    with pytest.raises(gc.TraceError, match="function"):
        gc.callback(3, None)  # type: ignore[arg-type]


def test_an_interrupt_in_a_callback_is_one_of_the_call() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    run = gc.compile(lambda x: (gc.callback(interrupted, None), x)[1])
    with pytest.raises(KeyboardInterrupt):
        run(np.float64(1))


def test_what_happens_before_a_failure_has_happened_and_nothing_after() -> None:
    traced = Traced()

    @gc.compile
    def run(x: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            gc.callback(traced.note, None, k, x)
            gc.assert_(k < 2, "enough")
            return x + 1

        return gc.fori(0, 5, step, x)

    with pytest.raises(gc.RunError, match="enough"):
        run(np.float64(0))
    assert traced.log == ["0: 0.0", "1: 1.0", "2: 2.0"]


def test_two_threads_call_one_function_at_once() -> None:
    logs: dict[int, list[int]] = {0: [], 1: []}

    def note(who: Any, k: Any) -> Any:
        logs[int(who)].append(int(k))
        return np.float64(k)

    @gc.compile(threads=2)
    def run(who: Any) -> Any:
        return gc.fori(
            0, 50, lambda k, x: x + gc.callback(note, gc.spec((), "f64"), who, k), np.float64(0)
        )

    found: list[float] = []
    run(np.int64(0))
    logs[0].clear()
    threads = [
        threading.Thread(target=lambda who=who: found.append(float(run(np.int64(who)))))
        for who in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1225.0, 1225.0]
    assert logs == {0: list(range(50)), 1: list(range(50))}


def test_a_callback_may_call_compiled_functions() -> None:
    double = gc.compile(lambda x: x * 2)
    run = gc.compile(lambda x: gc.callback(double, gc.spec(x.shape, "f64"), x) + 1)
    assert run(np.arange(3.0)).tolist() == [1, 3, 5]


def step_of(use: Callable[[np.ndarray], Any], devices: list[str]) -> tuple[Any, gc.Variable]:
    """A run that writes a variable and then calls `use`, and the variable."""
    with gc.container("outside"):
        seen = gc.Variable(np.zeros(3, np.float32), name=f"seen{next(numbers)}")

    def step(x: Any) -> Any:
        total = seen.assign_add(x)
        with gc.device(devices[-1]):
            return gc.callback(use, gc.spec((3,), "f32"), total)

    return gc.compile(step, devices=devices), seen


numbers = itertools.count()
USES: dict[str, Callable[[gc.Variable, np.ndarray], Any]] = {
    "reads": lambda v, x: v.value,
    "assigns": lambda v, x: v.assign(x),
    "runs": lambda v, x: gc.compile(lambda a: v.assign_add(a))(x),
    "reads in a run": lambda v, x: gc.compile(lambda a: v + a)(x),
    "resets": lambda v, x: gc.reset_container("outside"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("devices", [["cpu:0"], ["cpu:0", "cpu:1"]], ids=len)
def test_a_callback_does_not_wait_for_what_its_own_run_writes(use: str, devices: list[str]) -> None:
    def touch(x: np.ndarray) -> np.ndarray:
        if x[0] == 1:
            USES[use](seen, x)
        return x

    step, seen = step_of(touch, devices)
    one = np.ones(3, np.float32)
    for _ in range(2):  # the first time through the slow path and the second through the fast one
        seen.assign(0 * one)
        with pytest.raises(
            gc.RunError, match=r"'outside': the run writes it(.|\n)*test_host_calls.py"
        ):
            step(one)
        assert step(one).tolist() == [2, 2, 2]
        for _ in range(8):
            step(one)


def test_a_callback_reads_what_its_run_reads_and_writes_what_it_does_not_use() -> None:
    with gc.container("outside"):
        v = gc.Variable(np.ones(3, np.float32), name="read")
    with gc.container("elsewhere"):
        other = gc.Variable(np.zeros(3, np.float32), name="written")
    found = []

    def touch(x: np.ndarray) -> np.ndarray:
        other.assign_add(x)
        found.append(gc.compile(lambda a: v * a)(x)[0])
        return np.asarray(v.value)

    def refused(x: np.ndarray) -> None:
        v.assign(x)

    run = gc.compile(lambda x: v + gc.callback(touch, gc.spec((3,), "f32"), x))
    wrong = gc.compile(lambda x: (gc.callback(refused, None, x), v + x)[1])
    for _ in range(10):
        assert run(np.full(3, 2, np.float32)).tolist() == [2, 2, 2]
        with pytest.raises(gc.RunError, match="'outside': the run reads it"):
            wrong(np.ones(3, np.float32))
    assert found == [2] * 10 and other.value.tolist() == [20] * 3


def test_lines_keep_their_order_among_variables(capsys: pytest.CaptureFixture[str]) -> None:
    v = gc.Variable(np.float64(0), name="outside_v")

    @gc.compile
    def run(x: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            v.assign_add(1.0)
            gc.print("in {}", v.value)
            return x

        gc.print("before {}", v.value)
        x = gc.fori(0, 2, step, x)
        gc.print("after {}", v.value)
        return x

    run(np.float64(0))
    assert capsys.readouterr().out.split() == [
        "before",
        "0.0",
        "in",
        "1.0",
        "in",
        "2.0",
        "after",
        "2.0",
    ]


def test_files_print_and_assert_but_call_nothing(tmp_path: Any, capsys: Any) -> None:
    @gc.compile
    def talks(x: Any) -> Any:
        gc.print("x {}", x)
        gc.assert_(x < 3, "too large", x)
        return x + 1

    @gc.compile
    def calls(x: Any) -> Any:
        return gc.callback(np.sin, gc.spec((), "f64"), x)

    x = np.float64(1)
    talks.save(tmp_path / "talks.gir", x)
    loaded = gc.load(tmp_path / "talks.gir")
    assert loaded(x) == {"0": 2} or loaded(x) == 2
    assert capsys.readouterr().out.startswith("x 1.0\n")
    with pytest.raises(gc.RunError, match="too large"):
        loaded(np.float64(4))
    with pytest.raises(gc.GraphError, match="a file"):
        calls.save(tmp_path / "calls.gir", x)
    (tmp_path / "calls.gir").write_text(gc.show(calls.graph(x)))
    for permission in ((), True, ["callback"]):
        with pytest.raises(gc.GraphError, match=r"may only compute|no custom op"):
            gc.load(tmp_path / "calls.gir", custom_ops=permission)
    text = gc.show(calls.graph(x))
    assert gc.show(gc.parse(text)) == text


def test_compiled_files_refuse(tmp_path: Any) -> None:
    from graphc.runtime.files.gcx_writer import save

    run = gc.compile(lambda x: (gc.print("x {}", x), x)[1])
    with pytest.raises(gc.GraphError, match="calls no Python"):
        save(run.executable(np.float64(1)).image, tmp_path / "talks.gcx")


def test_the_tests_of_loops_and_backward_functions_refuse() -> None:
    def test(x: Any) -> Any:
        gc.print("x {}", x)
        return x < 3

    @gc.custom_grad
    def own(x: Any) -> Any:
        def backward(ct: Any) -> Any:
            gc.print("ct {}", ct)
            return ct

        return x, backward

    with pytest.raises(gc.GraphError, match="the test of a while loop calls Python"):
        gc.compile(lambda x: gc.while_loop(test, lambda x: x + 1, x))(np.float64(1))
    with pytest.raises(gc.GraphError, match="calls Python"):
        gc.compile(gc.grad(own))(np.float64(1))


def test_a_callback_has_no_gradient_and_is_not_called_again() -> None:
    def sine(x: Any) -> Any:
        return gc.callback(np.sin, gc.spec((), "f64"), x)

    x = np.float64(1)
    with pytest.raises(gc.GraphError, match="callback has no gradient") as caught:
        gc.grad(sine)(x)
    assert caught.value.location is not None and "test_host_calls" in caught.value.location[0]
    assert gc.grad(lambda x: x * gc.stop_gradient(sine(x)))(x) == np.sin(1)
    for again in (
        lambda: gc.grad(lambda x: x * gc.checkpoint(lambda x: sine(gc.stop_gradient(x)) * x)(x))(x),
        lambda: gc.jvp(lambda x: x * sine(gc.stop_gradient(x)), (x,), (x,)),
    ):
        with pytest.raises(gc.GraphError, match="called again"):
            again()


def test_outside_of_traces_it_happens_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    gc.print("{} and {}", np.arange(3), 2.5)
    assert capsys.readouterr().out == "[0 1 2] and 2.5\n"
    gc.assert_(True)
    gc.assert_(np.zeros(0, bool))
    with pytest.raises(gc.RunError, match="no") as caught:
        gc.assert_(np.array([True, False]), "no", 3)
    assert caught.value.location is not None and "test_host_calls" in caught.value.location[0]
    with pytest.raises(gc.TypeRuleError, match="booleans"):
        gc.assert_(1.0)
    assert gc.callback(np.sin, gc.spec((), "f64"), 1.0) == np.sin(1)
    assert gc.callback(lambda x: (x, x), None, 1.0) is None


def test_shapes_may_be_symbols(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    sines = gc.compile(lambda x: gc.callback(np.sin, gc.spec(x.shape, "f64"), x))
    for n in (0, 1, 2, 5, 7):
        x = np.arange(float(n))
        assert np.array_equal(sines(x), np.sin(x))
    shown = gc.compile(lambda x: (gc.print("{}", x), x + 1)[1])
    gc.save(tmp_path / "shown.gir", shown.graph(gc.spec(("n",), "f64")))
    loaded = gc.load(tmp_path / "shown.gir")
    for n in (2, 3):
        loaded(np.zeros(n))
        assert capsys.readouterr().out == f"{np.zeros(n)}\n"
