"""Callbacks that keep what a run tells: loggers, the best weights, summaries, curves."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.frontend.summaries.writers import Entry
from graphc.learn.chart import drawn
from graphc.learn.progress import Progress

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def regression(network: Any = None) -> gc.Model:
    network = network or gc.nn.Dense(3, 1)
    return gc.Model(network, loss=gc.nn.mse, optimizer=gc.optim.sgd(0.1))


class Scripted(gc.Callback):
    """Figures of epochs as they are written down."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        logs["val_loss"] = self.values[epoch]


def test_json_lines_hold_the_history(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    scripted = Scripted([1.5, math.nan, -math.inf])
    history = regression().fit((X, Y), 3, callbacks=[scripted, gc.JSONLogger(path)], verbose=0)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["loss"] for row in rows] == history["loss"]
    assert [row["val_loss"] for row in rows] == [1.5, "nan", "-inf"]
    assert [row["epoch"] for row in rows] == [0, 1, 2]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_best_weights_are_saved(mode: str, tmp_path: Path) -> None:
    values = [3.0, math.nan, 1.0, 2.0, 1.0]
    kept: list[Any] = []
    model = regression()
    best = gc.SaveBest(tmp_path / "best.safetensors", mode=mode)
    keep = lambda epoch, logs: kept.append(model.params["weight"].copy())
    model.fit((X, Y), 5, callbacks=[keep, Scripted(values), best], verbose=0)
    assert best.best_epoch == (2 if mode == "min" else 0)
    model.load(best.path)
    assert np.array_equal(model.params["weight"], kept[best.best_epoch])


def test_the_best_so_far_outlives_an_interruption(tmp_path: Path) -> None:
    def best() -> gc.SaveBest:
        return gc.SaveBest(tmp_path / "best.safetensors")

    callbacks = [Scripted([1.0, 2.0]), best()]
    regression().fit((X, Y), 1, callbacks=callbacks, checkpoint=tmp_path / "run", verbose=0)
    before = (tmp_path / "best.safetensors").read_bytes()
    callbacks = [Scripted([1.0, 2.0]), best()]
    regression().fit((X, Y), 2, callbacks=callbacks, checkpoint=tmp_path / "run", verbose=0)
    assert (tmp_path / "best.safetensors").read_bytes() == before


class Kept:
    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)

    def close(self) -> None:
        self.entries.append(Entry("closed", "", 0, None, 0.0))

    def steps(self, tag: str) -> list[int]:
        return [entry.step for entry in self.entries if entry.tag == tag]


def test_a_run_is_recorded() -> None:
    class Told(gc.nn.Layer):
        def init(self, key: Any, dtype: str = "f32") -> Any:
            return {}

        def forward(self, params: Any, x: Any) -> Any:
            gc.summary.histogram("x", x)
            return x

    kept, plain = Kept(), regression()
    model = regression(gc.nn.Sequential(Told(), gc.nn.Dense(3, 1)))
    model.set_weights({"params": [{}, plain.params], "state": model.state})
    options: Any = {"epochs": 2, "batch": 20, "validation": (X[:9], Y[:9]), "verbose": 0}
    history = model.fit((X, Y), callbacks=[gc.TensorBoard(kept, every=2)], **options)
    assert history == plain.fit((X, Y), **options)
    assert kept.steps("x") == kept.steps("step/loss") == [0, 2, 4]  # of training alone
    assert kept.steps("epoch/loss") == kept.steps("epoch/val_loss") == [0, 1]
    values = [entry.value for entry in kept.entries if entry.tag == "epoch/val_loss"]
    assert values == history["val_loss"]
    graphs = [entry.value for entry in kept.entries if entry.kind == "graph"]
    assert len(graphs) == 1 and len(graphs[0].nodes) > 10
    assert kept.entries[-1].kind == "closed"
    gc.summary.scalar("after", 1)
    assert not kept.steps("after")


def test_a_run_that_fails_is_recorded_no_longer() -> None:
    kept = Kept()

    def fail(epoch: int, logs: Any) -> None:
        raise KeyError(epoch)

    with pytest.raises(KeyError):
        regression().fit((X, Y), 2, callbacks=[gc.TensorBoard(kept), fail], verbose=0)
    gc.summary.scalar("after", 1)
    assert not kept.steps("after") and kept.entries[-1].kind == "closed"


# ------------------------------------------------------------------------------------ curves


@pytest.mark.slow
def test_a_picture_follows_the_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "loss.png"
    seen: list[bool] = []
    callbacks = [gc.LossCurve(path), lambda epoch, logs: seen.append(path.exists())]
    regression().fit((X, Y), 3, callbacks=callbacks, verbose=0)
    assert seen == [True] * 3


@pytest.mark.parametrize("seed", range(6))
def test_curves_are_drawn_in_their_room(seed: int) -> None:
    draw = np.random.default_rng(seed)
    for _ in range(40):
        epochs, scale = int(draw.choice([1, 2, 3, 50, 999])), draw.choice([1e-310, 1, 1e300, 1e308])
        odd = draw.choice([np.nan, np.inf, 0.0, 1.0], epochs)
        values = np.where(draw.random(epochs) < 0.2, odd, draw.uniform(-1, 1, epochs) * scale)
        if draw.random() < 0.5:
            values = np.abs(values)
        width, height = int(draw.integers(1, 90)), int(draw.integers(1, 20))
        text = drawn({"loss": values.tolist(), "val_loss": values[:1].tolist()}, width, height)
        lines = text.split("\n")
        if np.isfinite(values).any():
            assert len(lines) == max(4, height) + 2 and max(map(len, lines)) <= width
        else:
            assert "no finite figure" in text


def test_a_curve_falls_as_the_figures_do() -> None:
    history = gc.History({"loss": [4.0, 3.0, 2.0, 1.0], "val_loss": [1.0, 2.0]})
    assert history.draw(width=13, height=4).splitlines() == [
        "4 |••",
        "  |  •••",
        "2 |  ○○ •••",
        "1 |○○      ••",
        "  +----------",
        "   epoch 1 to",
    ]
    steep = gc.History({"loss": [10.0**-k for k in range(9)]}).draw(width=60, height=9)
    assert "logarithmic" in steep
    columns = [line.index("•") for line in steep.splitlines()[:9]]
    assert columns == sorted(columns) and len(set(columns)) == 9
    with pytest.raises(gc.GraphError, match="it has loss"):
        gc.History({"loss": [1.0]}).draw("accuracy")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_curve_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("graphc.learn.progress._PAUSE", 0.0)
    monkeypatch.setenv("COLUMNS", "60")
    regression().fit((X, Y), 3, verbose=3)
    screen = shown(stream.getvalue())
    assert sum("epoch 1 to 3" in line for line in screen) == 1
    assert sum("epoch 3/3" in line for line in screen) == 1 and len(screen) < 17
    assert all(len(line) < 60 for line in screen)
    quiet = io.StringIO()
    assert not Progress(3, quiet).is_shown


def shown(text: str) -> list[str]:
    """What a terminal shows in the end."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[\d*[AJ]|[\r\n]|[^\x1b\r\n]+", text):
        if part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
            assert row >= 0
        elif part == "\x1b[J":
            rows = [*rows[:row], rows[row][:column]]
        elif part == "\n":
            row, column = row + 1, 0
            rows += [""] * (row == len(rows))
        elif part == "\r":
            column = 0
        else:
            old = rows[row].ljust(column)
            rows[row] = old[:column] + part + old[column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in rows if line.rstrip()]
