"""MiniLM on sentences of any number and length: compilations and seconds, beside other compilers.

    python -m benchmarks.any_size                          1,000 pairs of batch and length
    python -m benchmarks.any_size --quick                  30 of them
    python -m benchmarks.any_size --engines graphc,jax --pairs 100

Batches of 1 to 16 and lengths of 4 to 128, random weights.  Each engine runs in a process of its
own, with an empty cache, on the same pairs in the same order; the time counts compilations and
calls, not imports and exports.  "jax-padded" fills batch and length up to powers of two with words
that are masked out.  Results are compared with those of eager PyTorch.  What is not installed is
left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases

TOLERANCE = 1e-4
Pair = tuple[np.ndarray, np.ndarray]
Engine = tuple[Callable[[np.ndarray, np.ndarray], Any], Callable[[], int]]


def pairs(count: int) -> Iterator[Pair]:
    """Sentences as numbers of words, and which words there are."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        batch, length = int(rng.integers(1, 17)), int(rng.integers(4, 129))
        ids = rng.integers(1000, 30000, (batch, length)).astype(np.int32)
        mask = np.ones((batch, length), np.float32)
        mask[-1, length - length // 4 :] = 0
        yield ids, mask


def weights() -> dict[str, Any]:
    return cases.random_minilm(np.random.default_rng(0))


# ------------------------------------------------------------------------------------ engines


def decorated() -> Engine:
    """A function of arrays whose weights are arguments."""
    import graphc as gc

    native = cases.CASES["minilm"].native
    assert native is not None
    compiled, p = gc.compile(native(gc)), weights()
    return lambda ids, mask: compiled(ids, mask, p), lambda: len(compiled.compiles)


def module() -> Any:
    """The model as PyTorch has it, with its weights inside."""
    import torch

    from benchmarks.in_torch import minilm

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = _tensors(weights())

        def forward(self, ids: Any, mask: Any) -> Any:
            return minilm(ids, mask, self.p)

    return Model().eval()


def _tensors(tree: Any) -> Any:
    import torch

    if isinstance(tree, dict):
        return {name: _tensors(part) for name, part in tree.items()}
    return [_tensors(p) for p in tree] if isinstance(tree, list) else torch.from_numpy(tree)


def exported() -> Any:
    import torch

    ids, mask = next(pairs(1))
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    examples = torch.from_numpy(ids), torch.from_numpy(mask)
    return torch.export.export(module(), examples, dynamic_shapes=(sizes, sizes))


def loaded(path: Path) -> Engine:
    import graphc as gc

    model = gc.load(path)
    (name,) = model.result_names

    def compilations() -> int:
        return len(
            {id(stage.built.stages) for stage in (*model._compilations.values(), *model._sized)}
        )

    return lambda ids, mask: model(ids, mask)[name], compilations


def from_onnx() -> Engine:
    import torch

    path = Path(tempfile.mkdtemp()) / "minilm.onnx"
    torch.onnx.export(exported(), dynamo=True).save(path)
    return loaded(path)


def from_export() -> Engine:
    import torch

    path = Path(tempfile.mkdtemp()) / "minilm.pt2"
    torch.export.save(exported(), path)
    return loaded(path)


def torch_eager() -> Engine:
    import torch

    model = module()

    def run(ids: np.ndarray, mask: np.ndarray) -> Any:
        with torch.no_grad():
            return model(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()

    return run, lambda: 0


def torch_compiled() -> Engine:
    import torch
    from torch._inductor.compile_fx import compile_fx

    compiled: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return compile_fx(graph, inputs)

    model = torch.compile(module(), dynamic=True, backend=backend)

    def run(ids: np.ndarray, mask: np.ndarray) -> Any:
        with torch.no_grad():
            return model(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()

    return run, lambda: len(compiled)


def jax_jitted() -> Engine:
    import jax

    from benchmarks.in_jax import minilm

    p = jax.tree.map(jax.numpy.asarray, weights())
    jitted = jax.jit(minilm)
    return lambda ids, mask: np.asarray(jitted(ids, mask, p)), jitted._cache_size


def jax_padded() -> Engine:
    """As users of JAX bound how often it compiles: every array is of one of few sizes."""
    jitted, compilations = jax_jitted()

    def run(ids: np.ndarray, mask: np.ndarray) -> Any:
        more = [(0, (1 << (n - 1).bit_length()) - n) for n in ids.shape]
        return jitted(np.pad(ids, more), np.pad(mask, more))[: len(ids)]

    return run, compilations


ENGINES: dict[str, tuple[Callable[[], Engine], str]] = {
    "torch": (torch_eager, "torch"),
    "graphc": (decorated, "numpy"),
    "graphc-onnx": (from_onnx, "onnxscript"),
    "graphc-pt2": (from_export, "torch"),
    "torch.compile": (torch_compiled, "torch"),
    "jax-padded": (jax_padded, "jax"),
    "jax": (jax_jitted, "jax"),
}


# ------------------------------------------------------------------------------------ measuring


def measure(name: str, count: int, folder: Path) -> dict[str, Any]:
    """Run one engine; its results stay in the folder, those of "torch" to compare with."""
    warnings.simplefilter("ignore")
    run, compilations = ENGINES[name][0]()
    results = []
    wall, cpu = time.perf_counter(), time.process_time()
    for ids, mask in pairs(count):
        results.append(run(ids, mask))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    known = folder / "torch.npz"
    if name == "torch":
        np.savez(known, *results)
    error = None
    if known.exists():
        with np.load(known) as wanted:
            differences = (np.abs(r - wanted[f"arr_{k}"]).max() for k, r in enumerate(results))
            error = float(max(differences))
    return {
        "engine": name,
        "pairs": count,
        "compilations": compilations(),
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "largest_difference": error,
    }


def rows(names: list[str], count: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            command = [sys.executable, "-m", "benchmarks.any_size", "--inside", folder]
            command += ["--engines", name, "--pairs", str(count)]
            fresh = {
                name: f"{folder}/{name}" for name in ("GRAPHC_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
            }
            made = subprocess.run(
                command, env={**os.environ, **fresh}, stdout=subprocess.PIPE, check=True, text=True
            )
            yield json.loads(made.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="30 pairs")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = [name for name in options.engines.split(",") if find_spec(ENGINES[name][1])]
    if options.inside is not None:
        print(json.dumps(measure(names[0], options.pairs, options.inside)))
        return 0
    bad = False
    print(f"{'engine':14} {'pairs':>6} {'compilations':>13} {'seconds':>8} {'CPU':>8}  difference")
    for row in rows(names, 30 if options.quick else options.pairs):
        error = row["largest_difference"]
        bad |= error is not None and not error <= TOLERANCE
        print(
            f"{row['engine']:14} {row['pairs']:6} {row['compilations']:13} {row['seconds']:8.2f} "
            f"{row['cpu_seconds']:8.2f}  {'' if error is None else f'{error:.1e}'}",
            flush=True,
        )
    return 3 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
