"""ONNX's own test cases on graphc: how many pass, and why the others do not.

    python -m benchmarks.onnx_cases                      node cases, compiled
    python -m benchmarks.onnx_cases --engine reference   on the interpreter: sooner
    python -m benchmarks.onnx_cases --kind light --match resnet

Results are compared with the tolerance of the case; absolute differences below two units of the
last place of the largest element pass, too, and two of bf16 as in ONNX's own runner.  Cases that
draw random numbers are compared in shape and type.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import graphc as gc
from graphc.formats.model import Compiled
from graphc.formats.onnx.model import OnnxModel
from graphc.formats.onnx.reader import from_proto

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
RANDOM = re.compile(r"test_bernoulli|test_training_dropout(_default)?(_mask)?$")


class Case(NamedTuple):
    """A model and what it must give."""

    name: str
    model: Any
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


def cases(kind: str) -> Iterator[Case]:
    """The cases of a kind in the installed onnx package."""
    from onnx import load
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = light() if kind == "light" else load_model_tests(kind=kind)
        for case in found:
            if isinstance(case, Case):
                yield case
            elif kind == "node":
                data = [(list(map(value, i)), list(map(value, o))) for i, o in case.data_sets]
                yield Case(case.name, case.model, data, case.rtol, case.atol)
            else:
                folder = Path(case.model_dir)
                model = load(folder / "model.onnx")
                yield Case(case.name, model, stored(folder, model), case.rtol, case.atol)


def light() -> Iterator[Case]:
    """Networks with constant weights; their inputs are ranges, as in ONNX's own runner."""
    import onnx
    from onnx import load, numpy_helper

    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    for path in sorted(folder.glob("*.onnx")):
        model = load(path)
        filled = {t.name for t in model.graph.initializer}
        feeds = []
        for entry in model.graph.input:
            if entry.name not in filled:
                shape = [d.dim_value for d in entry.type.tensor_type.shape.dim]
                count = int(np.prod(shape))
                feeds.append((np.arange(count) / count).astype(np.float32).reshape(shape))
        outputs = folder.glob(f"{path.stem}_output_*.pb")
        results = [numpy_helper.to_array(onnx.load_tensor(p)) for p in sorted(outputs)]
        yield Case(path.stem, model, [(feeds, results)], 1e-3, 1e-5)


def stored(folder: Path, model: Any) -> list[tuple[list[Any], list[Any]]]:
    """The data sets beside a model."""
    import onnx

    def read(path: Path, kind: Any) -> Any:
        made = onnx.SequenceProto() if kind.HasField("sequence_type") else onnx.TensorProto()
        if kind.HasField("optional_type"):
            made = onnx.OptionalProto()
        made.ParseFromString(path.read_bytes())
        return value(made)

    sets = []
    for each in sorted(folder.glob("test_data_set_*")):
        pairs = (("input", model.graph.input), ("output", model.graph.output))
        sides = [
            [
                read(each / f"{side}_{k}.pb", v.type)
                for k, v in enumerate(values)
                if (each / f"{side}_{k}.pb").exists()
            ]
            for side, values in pairs
        ]
        sets.append((sides[0], sides[1]))
    return sets


def value(item: Any) -> Any:
    """Arrays in the place of the messages that hold them."""
    import onnx
    from onnx import numpy_helper

    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    if isinstance(item, onnx.SequenceProto):
        return numpy_helper.to_list(item)
    if isinstance(item, onnx.OptionalProto):
        return numpy_helper.to_optional(item)
    return item


class Interpreted(OnnxModel):
    """A model on the reference interpreter: nothing is compiled."""

    def _compiled(self, graph: Any) -> Any:
        return graph

    def _execute(self, compiled: Compiled, arrays: list[Any]) -> list[Any]:
        from graphc.ops.reference.interpreter import interpret

        return interpret(compiled.built, arrays)  # type: ignore[arg-type]


def model_of(case: Case, engine: str = "compiled") -> OnnxModel:
    """The imported model. Raises GraphError where it cannot be."""
    file = from_proto(case.model, Path(f"{case.name}.onnx"))
    return (OnnxModel if engine == "compiled" else Interpreted)(file)


def outcome(case: Case, engine: str = "compiled") -> tuple[str, str]:
    """("passed" | "refused" | "wrong" | "crashed", why)."""
    try:
        model = model_of(case, engine)
        for feeds, expected in case.data:
            for made, wanted in zip(model.run(feeds), expected, strict=True):
                problem = difference(made, wanted, case)
                if problem:
                    return "wrong", problem
    except gc.GraphError as error:
        return "refused", str(error).replace("\n", "; ")
    except Exception as error:  # noqa: BLE001  (this is what is counted)
        return "crashed", repr(error)
    return "passed", ""


def difference(made: Any, wanted: Any, case: Case) -> str:
    """What is wrong with a result; empty where nothing is."""
    if isinstance(wanted, list) or wanted is None:
        if type(made) is not type(wanted) or len(made or ()) != len(wanted or ()):
            return f"{made!r} for {wanted!r}"
        return next(filter(None, (difference(*p, case) for p in zip(made or (), wanted or ()))), "")
    made, wanted = np.asarray(made), np.asarray(wanted)
    if (made.shape, made.dtype) != (wanted.shape, wanted.dtype):
        return f"{made.dtype}{list(made.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if RANDOM.match(case.name):
        return ""
    if wanted.dtype.kind in "biuOU":
        return "" if np.array_equal(made, wanted) else f"{(made != wanted).sum()} elements differ"
    rtol = max(case.rtol, 2**-6) if wanted.dtype.name == "bfloat16" else case.rtol
    last = 2.0 ** -(23 if wanted.dtype.itemsize > 2 else 10)
    if wanted.dtype.kind not in "fc" or wanted.dtype.itemsize <= 2:
        made, wanted = made.astype(np.float32), wanted.astype(np.float32)
    finite = np.abs(wanted[np.isfinite(wanted)])
    atol = max(case.atol, 2 * last * float(finite.max(initial=0.0)))
    close = np.isclose(made, wanted, rtol, atol, equal_nan=True)
    return "" if close.all() else f"{(~close).sum()} of {close.size} elements differ"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="node")
    parser.add_argument("--engine", choices=("compiled", "reference"), default="compiled")
    parser.add_argument("--match", default="", help="a regular expression on names")
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    started = time.perf_counter()
    for case in cases(chosen.kind):
        if re.search(chosen.match, case.name):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                how, why = outcome(case, chosen.engine)
            counts[how] += 1
            if how != "passed":
                print(f"{how:8} {case.name}: {why[:300]}", flush=True)
    print(f"{dict(counts)} in {time.perf_counter() - started:.0f} s")
    return 1 if counts["wrong"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
