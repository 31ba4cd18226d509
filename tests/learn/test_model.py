"""gc.Model learns, measures, stops, and goes on after a stop as if there had been none."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import crossed, few, rounds
from project import ROOT, environment
from training_runs import LABELS, X, Y, bits, network, regression

import graphc as gc
from graphc.frontend.trace.tree import flatten
from graphc.learn.progress import Progress, duration


class Interrupt(gc.Callback):
    """Ends a run after so many updates, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, model: Any, step: int, logs: Any) -> None:
        if step == self.step:
            raise KeyboardInterrupt


# ------------------------------------------------------------------------------------ learning


def test_fit_learns_and_returns_its_history() -> None:
    model = regression(metrics=[gc.nn.mae])
    history = model.fit((X, Y), epochs=40, batch=16, validation=(X[:20], Y[:20]))
    assert set(history) == {
        f"{v}{n}" for v in ("", "val_") for n in ("loss", "mean_absolute_error")
    }
    assert all(len(values) == 40 for values in history.values())
    assert history["loss"][-1] < history["loss"][0] / 10
    assert model.history is history and model.step == 40 * 6
    assert history["val_loss"][-1] == model.evaluate((X[:20], Y[:20]), batch=16)["loss"]


@pytest.mark.slow
def test_classification_with_named_metrics() -> None:
    model = gc.Model(
        network(),
        loss=gc.nn.cross_entropy,
        optimizer=gc.optim.adam(3e-2),
        metrics={"accuracy": gc.nn.accuracy},
    )
    history = model.fit((X, LABELS), epochs=30)
    assert history["accuracy"][-1] > 0.95
    assert (model.predict(X).argmax(1) == LABELS).mean() == pytest.approx(
        model.evaluate((X, LABELS))["accuracy"]
    )


def test_plain_function_equals_numpy() -> None:
    """Three updates of a linear model, against the same arithmetic by hand."""
    w = np.zeros((6, 2), "f4")
    model = gc.Model(
        lambda params, x: x @ params["w"], {"w": w}, loss=gc.nn.mse, optimizer=gc.optim.sgd(0.1)
    )
    expected = np.zeros((6, 2))
    for k in range(3):
        x, y = X[10 * k : 10 * k + 10], Y[10 * k : 10 * k + 10]
        figures = model.train_step(x, y)
        error = x @ expected - y
        np.testing.assert_allclose(figures["loss"], (error**2).mean(), rtol=1e-5)
        expected -= 0.1 * 2 * x.T @ error / error.size
    np.testing.assert_allclose(model.params["w"], expected, rtol=1e-4, atol=1e-6)
    assert not w.any()  # what the user gave is not written to


def test_parameters_from_a_function_of_a_key() -> None:
    model = gc.Model(
        lambda params, x: x @ params,
        lambda key: gc.random.normal(key, (6, 2)),
        loss=gc.nn.mse,
        optimizer=gc.optim.sgd(0.1),
        seed=4,
    )
    np.testing.assert_array_equal(model.params, gc.random.normal(gc.random.key(4), (6, 2)))


def test_plain_function_is_given_the_key_and_told_when_it_trains() -> None:
    def noisy(params: Any, x: Any, key: Any, training: bool) -> Any:
        return x @ params + (gc.random.normal(key, (2,)) if training else 0.0)

    model = gc.Model(noisy, np.ones((6, 2), "f4"), loss=gc.nn.mse, optimizer=gc.optim.sgd(0.0))
    losses = {float(model.train_step(X, Y)["loss"]) for _ in range(5)}
    assert len(losses) == 5
    np.testing.assert_allclose(model.predict(X), X.sum(1, keepdims=True).repeat(2, 1), rtol=1e-5)


def test_running_statistics_are_kept() -> None:
    layers = gc.nn.Sequential(gc.nn.BatchNorm(6), gc.nn.Dense(6, 2))
    model = gc.Model(layers, loss=gc.nn.mse, optimizer=gc.optim.sgd(0.0))
    before = [np.copy(leaf) for leaf in flatten(model.state)[0]]
    model.fit((X, Y), epochs=3)
    changed = [not np.array_equal(a, b) for a, b in zip(before, flatten(model.state)[0])]
    assert any(changed)


def test_learning_rate_zero_leaves_the_loss_bitwise_constant() -> None:
    for optimizer in (gc.optim.sgd(0.0), gc.optim.adam(0.0)):
        model = regression(optimizer)
        history = model.fit((X, Y), epochs=100, batch=90, shuffle=False)
        assert len(set(history["loss"])) == 1
        assert len(history["loss"]) == 100


def test_means_weigh_batches_by_their_samples() -> None:
    model = regression(gc.optim.sgd(0.0))
    history = model.fit((X, Y), batch=64, shuffle=False)
    whole = ((model.predict(X) - Y) ** 2).mean()
    assert history["loss"][0] == pytest.approx(whole, rel=1e-5)
    assert model.evaluate((X, Y), batch=7)["loss"] == pytest.approx(whole, rel=1e-5)


def test_predict_keeps_the_order_and_the_structure() -> None:
    model = gc.Model(
        lambda w, x: {"twice": x["a"] * 2 * w, "sum": x["a"].sum(1) + x["b"]},
        np.ones((), "f4"),
        loss=lambda result, y: result["sum"].mean(),
        optimizer=gc.optim.sgd(),
    )
    found = model.predict({"a": X, "b": Y[:, 0]}, batch=32)
    np.testing.assert_array_equal(found["twice"], X * 2)
    assert found["sum"].shape == (90,)


def test_batches_that_are_no_pairs_are_input_and_target() -> None:
    model = gc.Model(
        lambda w, x: x @ w, np.eye(6, dtype="f4"), loss=gc.nn.mse, optimizer=gc.optim.sgd()
    )
    assert model.evaluate(X)["loss"] == 0.0


def test_parameters_are_updated_in_place() -> None:
    model = regression()
    model.fit((X, Y), 2, batch=30)
    before = flatten((model.params, model.optimizer_state))[0]
    values = [np.copy(leaf) for leaf in before]
    model.fit((X, Y), 1, batch=30)
    after = flatten((model.params, model.optimizer_state))[0]
    assert all(a is b for a, b in zip(before, after))
    assert not any(np.array_equal(a, b) for a, b in zip(values, after))


def test_a_step_compiles_once_per_shape() -> None:
    model = regression()
    model.fit((X, Y), epochs=5, batch=32)
    assert len(model._train.compiles) == 2  # whole batches and the short last one


def test_weights_are_saved_and_loaded(tmp_path: Path) -> None:
    model, other = regression(seed=1), regression(seed=2)
    model.save(tmp_path / "weights.safetensors")
    assert not np.array_equal(model.predict(X), other.predict(X))
    other.load(tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    wider = gc.Model(gc.nn.Dense(6, 9), loss=gc.nn.mse, optimizer=gc.optim.sgd())
    with pytest.raises(gc.CheckpointError, match="does not fit"):
        wider.load(tmp_path / "weights.safetensors")


# ------------------------------------------------------------------------------------ callbacks


def test_callbacks_are_called_in_order() -> None:
    seen: list[Any] = []

    class Witness(gc.Callback):
        def on_fit_begin(self, model: Any) -> None:
            seen.append("fit")

        def on_epoch_begin(self, model: Any, epoch: int) -> None:
            seen.append(epoch)

        def on_step_end(self, model: Any, step: int, logs: Any) -> None:
            seen.append((step, sorted(logs)))

        def on_epoch_end(self, model: Any, epoch: int, logs: Any) -> None:
            logs["answer"] = 42
            seen.append("end")

        def on_fit_end(self, model: Any) -> None:
            seen.append("over")

    epochs: list[Any] = []
    history = regression().fit(
        (X, Y), 2, batch=45, callbacks=[Witness(), lambda k, logs: epochs.append((k, len(logs)))]
    )
    steps = [(k, ["loss"]) for k in range(1, 5)]
    assert seen == ["fit", 0, *steps[:2], "end", 1, *steps[2:], "end", "over"]
    assert epochs == [(0, 2), (1, 2)]
    assert history["answer"] == [42, 42]


class Scripted(gc.Callback):
    """Validation losses as a test wants them."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        logs["val_loss"] = logs["val_accuracy"] = self.values[epoch]


@pytest.mark.parametrize(
    ("values", "options", "epochs"),
    [
        ([3, 2, 1, 2, 1.5, 1.4, 0], {"patience": 3}, 6),
        ([3, 2, 2, 0], {}, 3),
        ([3, 2, 1.95, 1.9, 1], {"patience": 2, "min_delta": 0.2}, 4),
        ([0, 1, 2, 1, 1], {"patience": 1, "monitor": "val_accuracy"}, 4),
        ([0, 1, 2], {"mode": "min"}, 2),
        ([float("nan")] * 5, {"patience": 2}, 2),
        ([5, 4, 3, 2], {}, 4),
    ],
)
def test_early_stopping(values: list[float], options: dict[str, Any], epochs: int) -> None:
    callbacks = [Scripted(values), gc.EarlyStopping(**options)]
    history = regression().fit((X, Y), len(values), callbacks=callbacks)
    assert len(history["loss"]) == epochs


def test_early_stopping_restores_the_best() -> None:
    kept: list[Any] = []
    stopping = gc.EarlyStopping(patience=2, restore_best=True)
    model = regression(gc.optim.sgd(0.1))

    def keep(epoch: int, logs: dict[str, float]) -> None:
        kept.append(np.copy(model.params[0]["weight"]))

    model.fit((X, Y), 9, callbacks=[Scripted([3, 1, 2, 2, 2]), keep, stopping])
    assert stopping.best_epoch == 1 and len(kept) == 4
    np.testing.assert_array_equal(model.params[0]["weight"], kept[1])
    assert not np.array_equal(kept[1], kept[3])


def test_learning_rate_is_logged() -> None:
    schedule = gc.optim.piecewise([6, 12], [0.1, 0.01, 0.001])
    history = regression(gc.optim.sgd(schedule)).fit(
        (X, Y), 3, batch=15, callbacks=[gc.LearningRateLogger()]
    )
    assert history["learning_rate"] == [0.1, 0.01, 0.001]


def test_history_goes_into_a_file_and_a_picture(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    table = tmp_path / "log.csv"
    history = regression().fit((X, Y), 3, validation=(X, Y), callbacks=[gc.CSVLogger(table)])
    lines = table.read_text().splitlines()
    assert lines[0] == "epoch,loss,val_loss" and len(lines) == 4
    assert float(lines[3].split(",")[1]) == history["loss"][2]
    history.plot(tmp_path / "loss.png")
    assert image.open(tmp_path / "loss.png").size[0] > 300


# ------------------------------------------------------------------------------------ progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (1, 0), (2, 2)])
def test_progress_is_quiet_where_nobody_watches(
    verbose: int, lines: int, capfd: pytest.CaptureFixture[str]
) -> None:
    regression().fit((X, Y), 2, batch=30, verbose=verbose)
    out, errors = capfd.readouterr()
    assert out == "" and len(errors.splitlines()) == lines
    assert all("3/3" in line and "loss" in line for line in errors.splitlines())


def test_progress_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("graphc.learn.progress._PAUSE", 0.0)
    regression().fit((X, Y), 2, batch=30)
    drawn = stream.getvalue().split("\r")[1:]
    assert len(drawn) == 8 and stream.getvalue().count("\n") == 2
    assert drawn[0].startswith("epoch 1/2 [========>               ] 1/3  ")
    assert drawn[-1].startswith("epoch 2/2 [========================] 3/3  ")
    assert all(len(line.rstrip()) < 80 for line in drawn)


def test_a_narrow_terminal_shows_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("graphc.learn.progress._PAUSE", 0.0)
    monkeypatch.setenv("COLUMNS", "60")
    history = regression().fit((X, Y), 1, batch=30, validation=(X, Y))
    *others, last = stream.getvalue().split("\r")[1:]
    assert all(len(line) < 60 for line in others)
    assert last.startswith("epoch 1/1 [=====] 3/3  ")
    assert last.rstrip().endswith(f"val_loss {history['val_loss'][0]:.4g}")


def test_short_epochs_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    model = regression()
    model.fit((X, Y), 2, verbose=0)  # compiled
    model.fit((X, Y), 20)
    assert stream.getvalue().count("\n") == 1
    assert "epoch 20/20" in stream.getvalue().split("\r")[-1]
    assert not Progress(0, stream).is_shown


def test_time_of_a_step_is_a_mean_without_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr("graphc.learn.progress.time.perf_counter", lambda: now[0])

    class Slow(gc.Callback):
        def on_step_end(self, model: Any, step: int, logs: Any) -> None:
            now[0] += 50.0 if step == 1 else 2.0

    monkeypatch.setattr(sys, "stderr", stream)
    regression().fit((X, Y), 1, batch=18, callbacks=[Slow()], verbose=2)
    assert "5/5  2 s/step" in stream.getvalue()


def test_durations() -> None:
    assert [duration(s) for s in (2.5, 0.0123, 4.5e-5)] == ["2.5 s", "12.3 ms", "45 us"]


# ------------------------------------------------------------------------------------ resuming


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "every"), crossed(few([1, 5, 6, 7, 17, 23, 24], 4), [None, 1, 5]))
def test_resumed_run_equals_an_undisturbed_one(tmp_path: Path, stop: int, every: Any) -> None:
    """Interrupted after any update, with checkpoints after epochs or after some updates: the same
    parameters, optimiser state, history and callbacks, bit for bit."""

    def make() -> tuple[gc.Model, dict[str, Any]]:
        stopping = gc.EarlyStopping("loss", patience=50, restore_best=True)
        callbacks = [stopping, gc.LearningRateLogger()]
        rate = gc.optim.cosine(1e-2, 24)
        options = {"epochs": 4, "batch": 16, "validation": (X[:9], Y[:9]), "callbacks": callbacks}
        return regression(gc.optim.adamw(rate), dropout=0.3, seed=3), options

    def folder() -> Any:
        return gc.Checkpoints(tmp_path, every_steps=every)

    whole, options = make()
    history = whole.fit((X, Y), **options)
    broken, options = make()
    options["callbacks"].append(Interrupt(stop))
    with pytest.raises(KeyboardInterrupt):
        broken.fit((X, Y), checkpoint=folder(), **options)
    interval = 6 if every is None else every
    last = (stop - 1) // interval * interval
    assert folder().steps()[-1:] == ([last] if last else [])
    resumed, options = make()
    options["callbacks"].append(Interrupt(-1))
    assert resumed.fit((X, Y), checkpoint=folder(), **options) == history
    assert bits(resumed) == bits(whole)


def test_finished_run_is_not_trained_again_but_for_more_epochs(tmp_path: Path) -> None:
    whole = regression().fit((X, Y), 5)
    regression().fit((X, Y), 3, checkpoint=tmp_path)
    again = regression()
    assert len(again.fit((X, Y), 3, checkpoint=tmp_path)["loss"]) == 3
    assert again.step == 9
    assert regression().fit((X, Y), 5, checkpoint=tmp_path) == whole


def test_other_runs_are_not_mixed_up(tmp_path: Path) -> None:
    regression().fit((X, Y), 1, checkpoint=tmp_path)
    with pytest.raises(gc.CheckpointError, match="another run"):
        regression().fit((X, Y), 1, checkpoint=tmp_path, resume=False)
    with pytest.raises(gc.CheckpointError, match="does not fit"):
        regression(gc.optim.sgd()).fit((X, Y), 2, checkpoint=tmp_path)
    with pytest.raises(gc.CheckpointError, match="other callbacks"):
        regression().fit((X, Y), 2, checkpoint=tmp_path, callbacks=[gc.EarlyStopping("loss")])
    with pytest.raises(gc.FeedError, match="another loader"):
        regression().fit((X[:50], Y[:50]), 2, checkpoint=tmp_path)


RUN = """
import sys
import json
import graphc as gc
from training_runs import X, Y, bits, regression
model = regression(dropout=0.2, seed=1)
model.fit((X, Y), 25, batch=8, checkpoint=gc.Checkpoints(sys.argv[1], every_steps=1))
print(bits(model).hex(), json.dumps(model.history))
"""


@pytest.mark.slow
def test_killed_runs_end_like_an_undisturbed_one(tmp_path: Path) -> None:
    """Kill -9 at random steps of a compiled training run."""

    def newest(folder: Path) -> int:
        return max((0, *(int(p.stem.removeprefix("step-")) for p in folder.glob("step-*.saf*"))))

    def start(folder: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", RUN, str(folder)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())

    whole, _ = start(tmp_path / "whole").communicate(timeout=300)
    moments, kills = random.Random(3), 0
    for killed in range(rounds(1)):
        process = start(tmp_path / "killed")
        moment = moments.randrange(5 * killed % 40, 5 * killed % 40 + 5)  # of 50 steps
        while process.poll() is None and newest(tmp_path / "killed") < moment:
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    ended, _ = start(tmp_path / "killed").communicate(timeout=300)
    assert kills >= 1
    assert whole and ended == whole


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gc.Model(lambda p, x: x, loss=gc.nn.mse, optimizer=gc.optim.sgd()), "parameters"),
        (lambda: gc.Model(3, X, loss=gc.nn.mse, optimizer=gc.optim.sgd()), "network must be"),
        (lambda: regression(metrics=[3]), "cannot be called"),
        (lambda: regression(metrics={"loss": gc.nn.mse}), "cannot be called 'loss'"),
        (lambda: regression(metrics={"a": 3}), "metric a must be a function"),
        (lambda: regression(nonsense=True), "nonsense"),
        (lambda: regression().fit((X, Y), -1), "epochs must be"),
        (lambda: regression().fit((X, Y[:5])), "different numbers"),
        (lambda: regression().fit((X, Y), callbacks=[gc.EarlyStopping]), "with its options"),
        (lambda: regression().fit((X, Y), callbacks=[gc.EarlyStopping()]), "watches 'val_loss'"),
        (lambda: regression(metrics={"m": lambda r, y: r}).evaluate((X, Y)), "must be one number"),
        (lambda: regression().fit(X, Y), r"fit\(\(x, y\), epochs=10\)"),
        (lambda: regression().fit((X, Y), verbose=7), "verbose is 0, 1, 2 or 3, not 7"),
        (lambda: gc.Model(network(), loss="mse", optimizer=gc.optim.sgd()), "gc.nn has losses"),  # type: ignore[arg-type]
        (lambda: regression().fit((X.tolist(), Y.tolist())), "lists are nestings"),
        (lambda: regression().fit([(X, Y), (X[:5], Y[:5])]), "lambda: batches"),
        (lambda: regression().fit(lambda: iter(())), "the data is empty"),
        (lambda: regression().fit({"x": X, "y": Y}), "batch is a dict with x, y: no pair"),
        (lambda: regression().evaluate((X, Y, Y)), "batch is a tuple of 3: no pair"),
        (lambda: regression().predict((X, Y)), "batch is a tuple of 2: no input x"),
        (lambda: gc.EarlyStopping(mode="up"), "'min' or 'max'"),
        (lambda: gc.History().plot("x.png"), "no epoch"),
    ],
)
def test_bad_input_is_one_clear_error(make: Any, message: str) -> None:
    with pytest.raises(gc.GraphError, match=message):
        make()


def test_loss_of_another_shape_is_a_clear_error() -> None:
    model = gc.Model(network(), loss=lambda r, y: r - y, optimizer=gc.optim.sgd())
    with pytest.raises(gc.GraphError, match="one"):
        model.fit((X, Y))


def test_takion_has_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    takion = importlib.import_module("takion")
    model = takion.model()
    assert model.parameter_count == 22_703
    history = model.fit(takion.samples(100), 5, batch=takion.BATCH)
    assert history["loss"][-1] < history["loss"][0]
    assert json.loads(json.dumps(history)) == history


def _rows(count: int, first: int = 0) -> Any:
    for k in range(first, first + count):
        x = np.random.default_rng(k).normal(size=(8, 3)).astype(np.float32)
        yield x, x.sum(1, keepdims=True)


def _linear(**options: Any) -> gc.Model:
    return gc.Model(gc.nn.Dense(3, 1), loss=gc.nn.mse, optimizer=gc.optim.sgd(0.05), **options)


class _Again:
    def __iter__(self) -> Any:
        return _rows(4)


def test_fit_takes_whatever_makes_batches() -> None:
    whole = [np.concatenate(column) for column in zip(*_rows(4))]
    wanted = _linear().fit(tuple(whole), 3, batch=8, shuffle=False, verbose=0)
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(*map(torch.from_numpy, whole))
    sources: dict[str, Any] = {
        "function": lambda: _rows(4),
        "iterable": _Again(),
        "DataLoader": torch.utils.data.DataLoader(dataset, batch_size=8),
        "lists": lambda: ([x, y] for x, y in _rows(4)),
    }
    for name, source in sources.items():
        assert _linear().fit(source, 3, verbose=0) == wanted, name
    model = _linear()
    model.fit(sources["function"], 1, verbose=0)
    again = model.evaluate(_Again())
    assert again == model.evaluate(tuple(whole), batch=8)


class _Uncounted:
    """As a DataLoader of a dataset that is only iterated over: its length raises."""

    def __iter__(self) -> Any:
        return _rows(4)

    def __len__(self) -> int:
        raise TypeError("object of type 'Dataset' has no len()")


class _Broken(_Again):
    def __iter__(self) -> Any:
        yield from _rows(2)
        raise OSError("the disk is gone")


def test_loaders_without_a_length_and_those_that_fail() -> None:
    wanted = _linear().fit(_Again(), 2, verbose=0)
    assert _linear().fit(_Uncounted(), 2, verbose=0) == wanted
    model = _linear()
    with pytest.raises(OSError, match="the disk is gone"):
        model.fit(_Broken(), 2, verbose=0)
    assert model.step == 2
    torch = pytest.importorskip("torch")
    rows = [torch.from_numpy(np.concatenate(column)) for column in zip(*_rows(4))]
    halves = [column.bfloat16() for column in rows]
    assert len(_linear().fit(tuple(halves), 1, batch=8, verbose=0)) == 1
    with pytest.raises(gc.FeedError, match="requires grad"):
        _linear().fit((rows[0].requires_grad_(), rows[1]), 1, verbose=0)


def test_generators_need_steps_for_more_than_one_epoch(tmp_path: Any) -> None:
    assert len(_linear().fit(_rows(3), 1, verbose=0)) == 1
    with pytest.raises(gc.FeedError, match="not one batch for epoch 2"):
        _linear().fit(_rows(3), 2, verbose=0)
    endless = (batch for k in itertools.count() for batch in _rows(1, k))
    one, other = _linear(), _linear()
    made = one.fit(endless, 3, steps=2, verbose=0)
    assert one.step == 6
    assert other.fit(_rows(6), 3, steps=2, verbose=0) == made
    for steps in (0, -1, 1.5):
        with pytest.raises(gc.FeedError, match="steps must be"):
            _linear().fit(_rows(3), 1, steps=steps, verbose=0)
    with pytest.raises(gc.FeedError, match="steps goes with batches"):
        _linear().fit((np.ones((4, 3)), np.ones((4, 1))), 1, steps=2, verbose=0)
    with pytest.raises(gc.FeedError, match="dtype"):
        _linear().fit(iter([(np.array(["a"]), np.ones(1))]), 1, verbose=0)


def test_a_run_over_batches_is_resumed(tmp_path: Any) -> None:
    whole = _linear()
    wanted = whole.fit(lambda: _rows(4), 4, verbose=0)
    _linear().fit(lambda: _rows(4), 2, checkpoint=tmp_path, verbose=0)
    resumed = _linear()
    assert resumed.fit(lambda: _rows(4), 4, checkpoint=tmp_path, verbose=0) == wanted
    np.testing.assert_array_equal(resumed.params["weight"], whole.params["weight"])
