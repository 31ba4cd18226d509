"""What a run that failed tells of the value that is not finite, or of the index that is not there:
trip, pass, place, operands, line; and that what it was given is as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc

ROWS, PLACE = 5, (3, 1)  # row 3 holds the zero, at column 1
X = np.ones((ROWS, 3))
X[PLACE] = 0.0

Step = Callable[[Any], Any]


def scanned(step: Step, x: Any) -> Any:
    return gc.scan(lambda c, row: (c + step(row), None), np.zeros(3), x)[0].sum()


def counted(step: Step, x: Any) -> Any:
    return gc.fori(0, ROWS, lambda k, c: c + step(x[k]), np.zeros(3)).sum()


def repeated(step: Step, x: Any) -> Any:
    def body(state: Any) -> Any:
        return state[0] + step(x[state[1]]), state[1] + 1

    return gc.while_loop(lambda state: state[1] < ROWS, body, (np.zeros(3), 0))[0].sum()


def nested(step: Step, x: Any) -> Any:
    inner = lambda c, row: (c + gc.fori(0, 2, lambda k, d: d + step(row), c), None)
    return gc.scan(inner, np.zeros(3), x)[0].sum()


def branched(step: Step, x: Any) -> Any:
    def body(c: Any, row: Any) -> Any:
        return gc.cond(row[1] < 1, lambda r: c + step(r), lambda r: c + r, row), None

    return gc.scan(body, np.zeros(3), x)[0].sum()


def called(step: Step, x: Any) -> Any:
    return scanned(gc.checkpoint(gc.compile(step)), x)


def mapped(step: Step, x: Any) -> Any:
    return gc.vmap(lambda row: step(row).sum())(x).sum()


LOOPS: dict[str, tuple[Callable[..., Any], str]] = {
    "scan": (scanned, "in trip 3 of the scan"),
    "fori": (counted, "in trip 3 of the "),
    "while": (repeated, "in trip 3 of the while"),
    "nested": (nested, "in trip 3 of the scan"),
    "cond": (branched, "in trip 3 of the scan"),
    "call": (called, "in trip 3 of the scan"),
    "vmap": (mapped, "in slice 3 of the vmap"),
}


def failing(run: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(gc.RunError) as caught:
        run(*arguments)
    assert caught.value.location is not None
    assert Path(caught.value.location[0]).name == Path(__file__).name
    return str(caught.value)


@pytest.mark.parametrize("form", LOOPS)
def test_the_trip_is_told_forward(form: str) -> None:
    loop, where = LOOPS[form]
    plain = gc.compile(lambda x: loop(np.log, x), check_finite=True)
    said = failing(plain, X)
    assert said.startswith("non-finite value: -inf at [1]") and where in said
    assert "operand 0 of log" in said and "at [1]: 0.0" in said
    derived = failing(
        gc.compile(gc.value_and_grad(lambda x: loop(np.log, x)), check_finite=True), X
    )
    assert "in the forward pass" in derived and where in derived
    assert len(said.splitlines()) <= 12


@pytest.mark.parametrize("form", LOOPS)
def test_the_trip_is_told_on_the_way_back(form: str) -> None:
    loop, where = LOOPS[form]
    said = failing(gc.compile(gc.grad(lambda x: loop(np.sqrt, x)), check_finite=True), X)
    assert "on the way back" in said and "operand 1 of div" in said
    if form == "vmap":
        return  # all slices at once
    if "from the last" in said:
        where = where.replace("trip 3", f"trip {ROWS - 1 - 3} from the last")
    assert where in said


def test_an_index_that_is_not_there_has_a_trip() -> None:
    run = gc.compile(lambda x, i: gc.scan(lambda c, k: (c + x[k], None), 0.0, i)[0])
    said = failing(run, np.arange(4.0), np.array([1, 2, 9, 3]))
    assert "index 9 is out of range" in said and "in trip 2 of the scan" in said


def test_operands_of_sums_and_products_are_told_by_their_range() -> None:
    run = gc.compile(lambda x, w: np.exp(x) @ w, check_finite=True)
    said = failing(run, np.full((2, 4), 700.0), np.full((4, 2), 1e10))
    assert "operand 0 of matmul, exp at " in said
    assert "operand 1 of matmul, argument w, float64[4, 2]: from 1e+10 to 1e+10" in said
    odd = np.array([[1.0, np.nan], [3.0, 4.0]])
    assert "from 1 to 4, 1 not finite" in failing(
        gc.compile(lambda x: x.sum(axis=0), check_finite=True), odd
    )


def test_nothing_that_was_given_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    with gc.container("postmortem"):
        seen = gc.Variable(np.zeros(3), name="seen")

    def step(x: Any) -> Any:
        gc.print("once")
        return np.log(seen.assign_add(x)), x * 2

    run = gc.compile(step, donate=["x"], check_finite=True)
    x = np.array([1.0, 0.0, 2.0])
    said = failing(run, x)
    assert "-inf at [1]" in said and "assign at " in said
    assert capsys.readouterr().out == "once\n"
    assert x.tolist() == [1, 0, 2] and np.asarray(seen.value).tolist() == [0, 0, 0]
    gc.reset_container("postmortem")


def test_a_model_keeps_its_parameters() -> None:
    model = gc.Model(
        gc.nn.Dense(3, 1),
        loss=lambda y, t: np.sqrt(y - y + t).mean(),
        optimizer=gc.optim.adam(1e-2),
        check_finite=True,
    )
    good, bad = np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32)
    x = np.ones((4, 3), np.float32)
    model.train_step(x, good)
    before = model.params["weight"].copy()
    said = failing(model.train_step, x, bad)
    assert "on the way back" in said
    assert np.array_equal(model.params["weight"], before) and model.step == 1
    model.train_step(x, good)


def test_what_would_take_long_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.frontend.compile.postmortem.MOST_WORK", 1000)
    said = failing(gc.compile(lambda x: scanned(np.log, x), check_finite=True), X)
    assert said.startswith("non-finite value\n")


def test_what_only_python_can_tell_is_not_asked_again() -> None:
    calls: list[int] = []

    def tell(x: Any) -> Any:
        calls.append(1)
        return x

    run = gc.compile(lambda x: np.log(gc.callback(tell, x_spec, x)), check_finite=True)
    x_spec = gc.spec((ROWS, 3), "f64")
    assert failing(run, X).startswith("non-finite value\n") and calls == [1]


def test_a_saved_graph_is_explained(tmp_path: Path) -> None:
    gc.compile(lambda x: scanned(np.log, x)).save(tmp_path / "m.gir", X)
    run = gc.load(tmp_path / "m.gir", check_finite=True)
    assert "in trip 3 of the scan" in failing(run, X)


def test_an_index_is_told_with_its_axis_and_arguments(tmp_path: Path) -> None:
    x, i = np.ones((4, 3), np.float32), np.array([1, 5])

    def said(model: Any, *arguments: Any) -> str:
        with pytest.raises(IndexError) as told:
            model(*arguments)
        return str(told.value).splitlines()[0]

    rows = gc.compile(lambda x, i: x[i])
    text = "index 5 is out of range for axis 0 of extent 4 (arguments 'x', 'i')"
    assert said(rows, x, i) == text
    columns = gc.compile(lambda x, i: np.tanh(x)[:, i])
    assert said(columns, x, i) == "index 5 is out of range for axis 1 of extent 3 (argument 'i')"
    both = gc.compile(lambda x, i, j: x[i, j])
    assert "axis 1 of extent 3" in said(both, x, i - 2, i)
    rows.save(tmp_path / "m.gir", gc.spec(("n", 3), "f32"), gc.spec(("k",), "i64"))
    assert said(gc.load(tmp_path / "m.gir"), x, i) == text
    turns = gc.compile(lambda x, i: gc.fori(0, 2, lambda k, c: c + x[i], np.zeros(3)))
    assert "(arg" not in said(turns, x, i[1])  # the body has other names


def stepped(w: Any, ids: Any) -> Any:
    return w - 0.1 * gc.grad(lambda w: w[ids].sum())(w), w[ids].sum()


def trained(w: Any, ids: Any) -> Any:
    def body(w: Any, row: Any) -> Any:
        return w - 0.1 * gc.grad(lambda w: w[row].sum())(w), w[row].sum()

    return gc.scan(body, w, ids)


def labelled(w: Any, y: Any) -> Any:
    loss = lambda w: gc.cross_entropy(np.ones((2, 4)) @ w, y).mean()
    value, made = gc.value_and_grad(loss)(w)
    return w - made, value


DONATING: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "gradient": (stepped, [1, 9], "index 9 is out of range for axis 0 of extent 4"),
    "scan": (trained, [[1, 2], [1, 9]], "extent 4, in trip 1 of the scan"),
    "label": (labelled, [1, 2], "cross_entropy: label 2 is not in 0..1"),
}


@pytest.mark.parametrize("native", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("form", DONATING)
def test_an_index_is_told_where_other_arguments_are_donated(form: str, native: bool) -> None:
    step, wrong, text = DONATING[form]
    f, wrong = gc.compile(step, donate="w"), np.array(wrong)
    for _ in range(3 * native):
        f(np.ones((4, 2)), np.zeros_like(wrong))
    w = np.ones((4, 2))
    assert text in failing(f, w, wrong)
    assert text in failing(gc.compile(step), np.ones((4, 2)), wrong)


def test_an_index_that_a_donated_argument_made_is_not_guessed() -> None:
    """What it was is gone, or may be: neither it nor what depends on it is told."""

    def found(step: Callable[..., Any], *arguments: Any) -> str:
        return failing(gc.compile(step, donate="w"), np.full(4, 2.0), *arguments)

    table, three, nine = np.ones(6), np.array(3), np.array(9)
    computed = lambda w, t: (w * 3, t[(w * 3).astype(int)].sum())
    assert "index out of range" in found(computed, table)
    carried = lambda w, t: gc.fori(0, 3, lambda k, c: c + t[(c * 2).astype(int)], w)
    assert "index out of range" in found(carried, table)
    repeated = lambda w, t, i: gc.while_loop(
        lambda s: s[0].sum() < 9, lambda s: (s[0] + t[i + s[1]], s[1] + 3), (w - 2, 0)
    )
    assert "index out of range" in found(repeated, table, three)
    chosen = lambda w, t, i, j: (
        w + gc.cond(w[0] > 1, lambda: t[i], lambda: t[j]) * 0,
        t[(w * i).astype(int)].sum(),
    )
    assert "index out of range" in found(chosen, table, nine, nine + 3)
