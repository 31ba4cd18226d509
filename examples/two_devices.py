"""MiniLM on two devices, stage by stage: what runs where, what crosses, when, and how many bytes.

The sentences are read in two halves, so that a device can work on one while the other device has
the other.  Placement is asked twice: once it may do as it likes, once the first three layers have
to be on cpu:0 and the last three on cpu:1, as if their weights did not fit on one.  The second
program is then followed through partition, schedule and compression to a run, which is traced, and
set beside a simulation with the costs that the kernels had in earlier runs.

    python examples/two_devices.py                # needs what sentence_similarity.py needs
    python examples/two_devices.py --error-budget 1e-3
    python examples/two_devices.py --json
"""

import json
import re
import time
from collections import Counter, defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from sentence_similarity import (
    LAYERS,
    SENTENCES,
    embedding,
    encode,
    layer,
    read_weights,
    tokenize,
    unit_vectors,
)

import graphc as gc
from graphc.config import Config
from graphc.ir.place import parse_device
from graphc.passes.placement.measured import cost_model
from graphc.passes.placement.simulate import simulate
from graphc.runtime.observe.trace import trace
from graphc.viewer.traces import write_trace

DEVICES = ["cpu:0", "cpu:1"]
FOLDER = click.Path(file_okay=False, path_type=Path)
SHOWN = 6


def in_halves(function, ids, mask):
    return gc.parallel.join([function(*half) for half in gc.parallel.split((ids, mask), 2)])


def models(weights):
    """The encoder on one device, wherever it is best, and cut in the middle.

    The weights are constants: they are on every device that reads them."""

    def alone(ids, mask):
        return encode(ids, mask, weights)

    def free(ids, mask):
        return in_halves(alone, ids, mask)

    def half(ids, mask):
        x = embedding(ids, weights)
        hide = (mask[:, None, None, :] - 1) * 1e9
        for i in range(LAYERS):
            with gc.device(DEVICES[2 * i // LAYERS]):
                x = layer(x, hide, weights, f"encoder.layer.{i}")
        return unit_vectors(x, mask)

    def cut(ids, mask):
        return in_halves(half, ids, mask)

    return alone, free, cut


# ------------------------------------------------------------------------------------ the stages


def stages(run, ids, mask):
    """{stage: (graph or program, one line, decisions)}"""
    return {r.name: (r.value, str(r.note), r.note.reasons) for r in run.stages(ids, mask)}


def placed(found):
    """How long placement thinks it takes, how many nodes had no choice, and what was weighed."""
    graph, _, reasons = found["place"]
    nodes = {node.id: node for node in graph.nodes}
    summary = [text for _, text in reasons if text.startswith("makespan")]
    forced = [number for number, text in reasons if "only device" in text]
    weighed = [
        {"node": nodes[number].op.name, "line": line_of(nodes[number]), "decision": text}
        for number, text in reasons
        if "rejected" in text or "moved" in text
    ]
    return {"summary": summary[0], "forced": len(forced), "weighed": weighed}


def line_of(node):
    return f"{Path(node.loc[0]).name}:{node.loc[1]}" if node.loc else ""


def messages(found):
    """Every transfer of the partitioned program."""
    rows = []
    for graph in found["partition"][0].graphs:
        for node in graph.nodes:
            if node.op.name == "send" and node.inputs:
                value = node.inputs[0]
                rows.append(
                    {
                        "channel": node.attrs["channel"],
                        "to": short(node.attrs["to"]),
                        "value": value.attrs["name"] if value.op.name == "param" else value.op.name,
                        "type": str(value.type),
                        "line": line_of(value),
                    }
                )
    return rows


def short(device):
    return str(device).rpartition("device:")[2]


def decisions(found, stage):
    """The summary of a stage and its reasons, those that changed something first."""
    _, note, reasons = found[stage]
    texts = [text for _, text in reasons]
    return {"summary": note, "reasons": sorted(texts, key=lambda t: not CHANGED.search(t))}


CHANGED = re.compile(r"^held back|saves")


# ------------------------------------------------------------------------------------ the run


def fastest(run, ids, mask, rounds):
    """The shortest of some calls, in milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run(ids, mask)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def simulated(program):
    """What each device would do, by the measured costs of its kernels."""
    devices = [parse_device(name) for name in DEVICES]
    cost = cost_model(devices, Config.create(devices=DEVICES, costs="measured"))
    found = simulate(program, cost, in_order=True)
    rows = []
    for device in devices:
        waits: defaultdict[str, float] = defaultdict(float)
        for wait in found.waits():
            if wait.device == device:
                waits[f"wait for {wait.source.short}"] += wait.end - wait.start
        moved = sum(t.end - t.start for t in found.transfers if t.target == device)
        rows.append(row_of(device.short, "simulated", found.busy(device), moved, waits))
    return 1e3 * found.makespan, rows


def row_of(device, kind, busy, moved, waits):
    return {
        "device": device,
        "kind": kind,
        "busy_ms": 1e3 * busy,
        "messages_ms": 1e3 * moved,
        "waits_ms": {name: 1e3 * seconds for name, seconds in waits.items()},
    }


def traced(run, ids, mask, folder, rounds):
    """What each device did in one run, beside its simulation; the timeline goes into two files."""
    gc.profile(run, ids, mask, runs=rounds)
    expected, rows = simulated(run.lower(ids, mask))
    _, found = trace(run.executable(ids, mask), [ids, mask])
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"two_devices{suffix}" for suffix in (".html", ".json")]
    for path in paths:
        write_trace(found, path)
    for number, device in enumerate(found.devices):
        totals = Counter(found.totals(number))
        waits = {name: s for name, s in totals.items() if name.startswith("wait")}
        busy, moved = totals["kernel"] + totals["copy"], totals["send"] + totals["transfer"]
        rows.append(row_of(device, "measured", busy, moved, waits))
    rows.sort(key=lambda row: row["device"])
    files = [str(path) for path in paths]
    return {"ms": 1e3 * found.seconds, "simulated_ms": expected, "devices": rows, "files": files}


def study(sentences, folder, rounds, budget):
    """Everything that is shown."""
    ids, mask = tokenize(sentences)
    alone, free, cut = models(read_weights())
    options: dict[str, Any] = {"devices": DEVICES, "threads": 1}
    short_options: dict[str, Any] = (
        {"error_budget": budget, "sample": (ids, mask)} if budget else {"compress": True}
    )
    runs = {
        "one device": gc.compile(alone, threads=1),
        "free": gc.compile(free, **options),
        "cut": gc.compile(cut, **options),
        "cut, compressed": gc.compile(cut, **options, **short_options),
    }
    wanted = runs["one device"](ids, mask)
    errors = {name: float(np.abs(run(ids, mask) - wanted).max()) for name, run in runs.items()}
    found, compressed = (stages(runs[name], ids, mask) for name in ("cut", "cut, compressed"))
    return {
        "sentences": list(sentences),
        "place": {"free": placed(stages(runs["free"], ids, mask)), "cut": placed(found)},
        "partition": messages(found),
        "schedule": decisions(found, "schedule"),
        "compress": decisions(compressed, "compress"),
        "errors": errors,
        "ms": {name: fastest(run, ids, mask, rounds) for name, run in runs.items()},
        "trace": traced(runs["cut"], ids, mask, folder, rounds),
    }


# ------------------------------------------------------------------------------------ the story


def table(console, title, columns, rows):
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*map(str, row))
    console.print(made)


def listed(console, texts):
    for text in texts[:SHOWN]:
        console.print(f"  {text}", markup=False)
    if len(texts) > SHOWN:
        console.print(f"  ... and {len(texts) - SHOWN} more")


def tell(console, story):
    console.rule("place", align="left")
    for name, text in (("free", "No constraints"), ("cut", "Layers 1-3 on cpu:0, 4-6 on cpu:1")):
        place = story["place"][name]
        console.print(f"{text}: {place['summary']}.", highlight=False)
        console.print(f"{place['forced']} decisions were forced, {len(place['weighed'])} free:")
        rows = [(row["node"], row["line"], row["decision"]) for row in place["weighed"][:SHOWN]]
        table(console, "", ["first node", "line", "decision"], rows)
    console.rule("partition", align="left")
    rows = [tuple(row.values()) for row in story["partition"]]
    console.print("One transfer per value and destination, straight from where it is made.")
    table(console, "", ["channel", "to", "value", "type", "line"], rows)
    console.rule("schedule", align="left")
    console.print("Each recv is held back until just before it is needed, if that saves memory.")
    console.print(story["schedule"]["summary"], highlight=False)
    listed(console, story["schedule"]["reasons"])
    console.rule("compress", align="left")
    console.print(story["compress"]["summary"], highlight=False)
    listed(console, story["compress"]["reasons"])
    console.rule("run", align="left")
    rows = [(n, f"{ms:.2f}", f"{story['errors'][n]:.1e}") for n, ms in story["ms"].items()]
    table(console, "", ["", "ms", "largest difference from one device"], rows)
    seen = story["trace"]
    lines = []
    for row in seen["devices"]:
        waits = ", ".join(f"{ms:.2f} {name}" for name, ms in row["waits_ms"].items())
        times = f"{row['busy_ms']:.2f}", f"{row['messages_ms']:.3f}", waits
        lines.append((row["device"], row["kind"], *times))
    title = f"one traced run of the cut model, {seen['ms']:.2f} ms"
    title += f"; simulated {seen['simulated_ms']:.2f} ms"
    table(console, title, ["device", "", "busy ms", "messages ms", "waits ms"], lines)
    console.print("timeline: " + ", ".join(seen["files"]), highlight=False)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Two sentences, one timed call.")
@click.option("--error-budget", type=float, help="Shorten only so many transfers, by this much.")
@click.option("--folder", type=FOLDER, default="runs", show_default=True, help="For the timeline.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the story.")
def main(quick, error_budget, folder, as_json) -> None:
    """Follow the sentence encoder through placement, partition, scheduling and compression."""
    console = Console()
    waiting = nullcontext() if as_json or not console.is_terminal else console.status("compiling")
    with waiting:
        chosen = SENTENCES[:2] if quick else SENTENCES
        story = study(list(chosen), folder, 1 if quick else 20, error_budget)
    if as_json:
        click.echo(json.dumps(story))
    else:
        tell(console, story)


if __name__ == "__main__":
    main()
