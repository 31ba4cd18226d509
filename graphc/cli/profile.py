"""`graphc profile`: each kernel's time, and what bounds it; where compile time went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphc.cli.bisect import feed_options
from graphc.cli.common import (
    MODEL,
    all_feeds,
    config_options,
    json_option,
    load_graph,
    make_config,
    print_json,
    print_table,
    progress,
    read_feeds,
    without_prints,
)
from graphc.cli.compile import parse_bindings
from graphc.errors import GraphError

if TYPE_CHECKING:
    from graphc.frontend.compile.build import Built

COLUMNS = ["kernel", "line", "calls", "us", "share", "Gflop/s", "GB/s", "bound by"]


@click.command("profile")
@click.argument("model", type=MODEL)
@feed_options
@click.option("--runs", type=click.IntRange(1, 100), default=9, help="How many are measured.")
@click.option(
    "--compile-time",
    "target",
    type=MODEL,
    metavar="FILE",
    help="Write where compile time went, as a flame graph for speedscope.",
)
@config_options
@json_option
def profile_command(
    model: Path,
    feeds: tuple[str, ...],
    seed: int | None,
    runs: int,
    target: Path | None,
    bindings: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the kernels of MODEL, on feeds or on arrays drawn from a seed, slowest first."""
    from graphc.frontend.diagnosis.why import Why, measured

    loaded = load_graph(model, make_config(options))
    values = all_feeds(loaded, read_feeds(feeds), parse_bindings(bindings), seed or 0)
    with progress("compiling", loaded.node_count):
        built, arrays = loaded.prepared((), values)
    with without_prints():
        why = Why(built.stages, loaded.config, measured(built, arrays, runs))
        counts, said = _counts(built, arrays)
    loads = sorted(why.loads(), key=lambda load: -load.seconds)
    rows = [{**_row(load, why), "counters": _counts_of(load, counts)} for load in loads]
    if target is not None:
        _write(target, flame_graph(built))
    if as_json:
        print_json({"kernels": rows, "compile_seconds": built.seconds, "counters": said})
        return
    total = sum(row["seconds"] for row in rows) or 1.0
    names = list(next(iter(counts.values()), {}))
    cells = [(*_cells(row, total), *_counter_cells(row, names)) for row in rows]
    print_table("kernels", [*COLUMNS, *names], cells)
    click.echo(said)
    if target is not None:
        click.echo(f"compile time written to {target}: https://www.speedscope.app shows it")


def _row(load: Any, why: Any) -> dict[str, Any]:
    took = max(load.seconds, 1e-12)
    return {
        "kernel": load.node.summary(),
        "line": f"{load.node.loc[0]}:{load.node.loc[1]}" if load.node.loc else "",
        "calls": load.calls,
        "seconds": load.seconds,
        "flops_per_second": load.flops * load.calls / took,
        "bytes_per_second": load.bytes * load.calls / took,
        "bound": why.verdict(load),
    }


def _cells(row: dict[str, Any], total: float) -> tuple[Any, ...]:
    return (
        row["kernel"][:60],
        row["line"],
        row["calls"],
        f"{1e6 * row['seconds']:.1f}",
        f"{100 * row['seconds'] / total:.0f} %",
        f"{row['flops_per_second'] / 1e9:.1f}",
        f"{row['bytes_per_second'] / 1e9:.1f}",
        row["bound"].partition(":")[0].removeprefix("bound by "),
    )


def _counts(built: Built, arrays: list[Any]) -> tuple[dict[tuple[str, str], Any], str]:
    """What the processor counts in the kernels of one more run, and what is to be said of that."""
    from graphc.runtime.observe.counters import Counters, counted

    with Counters() as counters:
        reasons = "; ".join(dict.fromkeys(counters.missing.values()))
        gone = ", ".join(counters.missing)
        absent = f"not counted here: {gone} ({reasons}; see perf_event_paranoid); what bounds a "
        absent += "kernel goes by its flops and bytes"
        try:
            found = counted(built.executable, arrays, counters) if counters.files else {}
        except GraphError as error:
            return {}, f"nothing is counted by the processor: {error.message}"
        return found, absent if gone else "counted in one run on one thread"


def _counts_of(load: Any, counts: dict[tuple[str, str], Any]) -> dict[str, float]:
    """The counts of a kernel; its node is on one device alone, or says on which."""
    from graphc.ir.place import device_of

    found: dict[str, dict[str, float]]
    found = {device: c for (device, node), c in counts.items() if node == load.node.summary()}
    device = device_of(load.node.place)
    own: dict[str, float] = next(iter(found.values()), {})
    return found.get(device.short if device else "", own)


def _counter_cells(row: dict[str, Any], names: list[str]) -> list[str]:
    return [f"{row['counters'][n]:,.0f}" if n in row["counters"] else "" for n in names]


def flame_graph(built: Built) -> dict[str, Any]:
    """Where a compilation spent its time, in the format of speedscope: stages, one after another,
    and then code generation."""
    frames: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    now = 0.0

    def frame(name: str) -> int:
        return frames.setdefault(name, len(frames))

    def event(kind: str, name: str) -> None:
        events.append({"type": kind, "frame": frame(name), "at": now})

    event("O", f"compile {built.stages[0].value.name}")
    event("O", "passes")
    for stage in built.stages:
        event("O", stage.name)
        now += stage.seconds
        event("C", stage.name)
    event("C", "passes")
    event("O", "code")
    now += built.build_seconds
    event("C", "code")
    event("C", f"compile {built.stages[0].value.name}")
    profile = {"type": "evented", "name": "compile time", "unit": "seconds"}
    profile |= {"startValue": 0.0, "endValue": now, "events": events}  # type: ignore[dict-item]
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [profile],
    }


def _write(target: Path, record: dict[str, Any]) -> None:
    from graphc.runtime.files.files import write_atomically

    write_atomically(target, [json.dumps(record).encode()])
