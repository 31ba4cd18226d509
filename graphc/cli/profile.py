"""`graphc profile`: each kernel's time, and what bounds it; where compile time went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphc.cli.bisect import feed_options
from graphc.cli.common import (
    MODEL,
    complete_feeds,
    config_options,
    json_option,
    load_graph,
    make_config,
    print_json,
    print_table,
    progress,
    read_feeds,
)

if TYPE_CHECKING:
    from graphc.frontend.compile.engine import Built

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
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the kernels of MODEL, on feeds or on arrays drawn from a seed, slowest first."""
    from graphc.frontend.diagnosis.why import Why, measured

    loaded = load_graph(model, make_config(options))
    values = complete_feeds(read_feeds(feeds), loaded.params, loaded.types, seed or 0)
    with progress("compiling", loaded.node_count):
        built, arrays = loaded.prepared((), values)
    why = Why(built.stages, loaded.config, measured(built, arrays, runs))
    rows = [_row(load, why) for load in sorted(why.loads(), key=lambda load: -load.seconds)]
    if target is not None:
        _write(target, flame_graph(built))
    if as_json:
        print_json({"kernels": rows, "compile_seconds": built.seconds})
        return
    total = sum(row["seconds"] for row in rows) or 1.0
    print_table("kernels", COLUMNS, [_cells(row, total) for row in rows])
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
