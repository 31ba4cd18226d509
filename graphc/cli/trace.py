"""`graphc run --trace`: the trace file, and tables that set a simulation beside what was measured:
what each device did, and the kernels and messages that took longest beyond what was expected."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.base.record import record
from graphc.errors import GraphError

if TYPE_CHECKING:
    from graphc.config import Config
    from graphc.frontend.compile.build import Built
    from graphc.passes.placement.timeline import Timeline
    from graphc.runtime.call.execute import Executable
    from graphc.runtime.observe.trace import Trace

LINKS = ["from", "to", "messages", "bytes", "moving us", "waits us"]
COLUMNS = ["device", "", "busy us", "messages us", "waits us", "end us", "waits for"]
BLAMED = ["device", "measured us", "simulated us", "what", "line"]
MOST_BLAMED = 8


@record
class Tracer:
    """Runs an executable; with a path the run is traced, and what its kernels cost is kept.

    `rows` says what each device did, `blamed` what differs most from its simulation, and `kept` how
    many costs went to which file.
    """

    path: Path | None
    config: Config | None = None
    rows: list[tuple[Any, ...]] | None = None
    links: list[tuple[Any, ...]] | None = None
    blamed: list[tuple[Any, ...]] | None = None
    kept: tuple[int, Path] | None = None

    def run(self, executable: Executable, arrays: list[Any], built: Built | None = None) -> Any:
        """The results."""
        if self.path is None:
            return executable.run(arrays)
        from graphc.runtime.observe.trace import trace
        from graphc.viewer.traces import write_trace

        results, found = trace(executable, arrays)
        names = titles(built) if built is not None else {}
        write_trace(found, self.path, names)
        self.rows = measured_rows(found)
        self.links = link_rows(found)
        if built is not None and self.config is not None:
            timeline = simulated(built, self.config)
            self.rows += simulated_rows(timeline, self.config)
            order = list(dict.fromkeys(row[0] for row in self.rows))  # idle devices come last
            self.rows.sort(key=lambda row: order.index(row[0]))
            self.blamed = blamed_rows(found, timeline, names)
            self.keep(built, found)
        return results

    def keep(self, built: Built, found: Trace) -> None:
        """Add what the run says of costs to the measured ones."""
        from graphc.frontend.compile.measure_devices import observed
        from graphc.passes.placement.measured import store

        costs = observed(built, found)
        with suppress(GraphError):  # a cache that cannot be written to keeps nothing
            self.kept = (len(costs.seconds), store(costs)) if costs.seconds else None


def titles(built: Built) -> dict[str, str]:
    """What the kernel of each node computes."""
    from graphc.frontend.files.dump import kernel_title
    from graphc.ir.verify import with_blocks

    nodes = [node for graph in with_blocks(built.program) for node in graph.nodes]
    return {node.summary(): kernel_title(node, repr(node)) for node in nodes}


def measured_rows(found: Trace) -> list[tuple[Any, ...]]:
    rows = []
    for number, device in enumerate(found.devices):
        totals = found.totals(number)
        waits = {k.removeprefix("wait for "): s for k, s in totals.items() if k.startswith("wait")}
        messages = totals.get("send", 0.0) + totals.get("transfer", 0.0)
        busy = totals.get("kernel", 0.0) + totals.get("copy", 0.0)
        end = max((e.end for e in found.events if e.device == number), default=0.0)
        rows.append(_row(device, "measured", busy, messages, waits, end))
    return rows


def link_rows(found: Trace) -> list[tuple[Any, ...]]:
    """What went between each two devices."""
    return [
        (k.source, k.target, k.messages, k.bytes, *_microseconds(k.moving, k.waiting))
        for k in found.links()
    ]


def simulated(built: Built, config: Config) -> Timeline:
    """A simulation with the costs that the configuration names."""
    from graphc.ir.place import parse_device
    from graphc.passes.placement.measured import cost_model
    from graphc.passes.placement.simulate import simulate

    devices = tuple(map(parse_device, config.devices))
    return simulate(built.program, cost_model(devices, config), in_order=True)


def simulated_rows(found: Timeline, config: Config) -> list[tuple[Any, ...]]:
    """The same of a simulation."""
    from graphc.ir.place import parse_device

    devices = tuple(map(parse_device, config.devices))
    rows = []
    for device in devices:
        waits: dict[str, float] = {}
        for wait in found.waits():
            if wait.device == device:
                name = wait.source.short
                waits[name] = waits.get(name, 0.0) + wait.end - wait.start
        messages = sum(t.end - t.start for t in found.transfers if t.target == device)
        end = max((found.end[n] for n in found.nodes.get(device, [])), default=0.0)
        kind = "simulated" if found.exact else "simulated, inaccurate"
        busy = found.busy(device) if device in found.nodes else 0.0
        rows.append(_row(device.short, kind, busy, messages, waits, end))
    return rows


def blamed_rows(found: Trace, timeline: Timeline, names: dict[str, str]) -> list[tuple[Any, ...]]:
    """The nodes whose measured seconds differ most from the simulated ones, the worst first.

    What the simulation takes as one, a loop with all that it contains, is not among them.
    """
    measured: dict[tuple[str, str], float] = {}
    lines: dict[tuple[str, str], str] = {}
    for event in found.events:
        if event.origin is not None and event.kind in ("kernel", "copy", "transfer"):
            key = found.devices[event.device], event.origin.node
            measured[key] = measured.get(key, 0.0) + event.seconds
            lines[key] = ":".join(map(str, event.origin.location or ()))
    expected = {
        (timeline.device[node].short, node.summary()): end - timeline.start[node]
        for node, end in timeline.end.items()
        if not node.regions or node.op.traits.kernel
    }
    both = sorted(expected.keys() & measured, key=lambda k: (-abs(measured[k] - expected[k]), k))
    return [
        (k[0], *_microseconds(measured[k], expected[k]), names.get(k[1], k[1]), lines[k])
        for k in both[:MOST_BLAMED]
    ]


def _microseconds(*seconds: float) -> list[float]:
    return [round(s * 1e6, 1) for s in seconds]


def _row(
    device: str, kind: str, busy: float, messages: float, waits: dict[str, float], end: float
) -> tuple[Any, ...]:
    named = ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in waits.items())
    numbers = _microseconds(busy, messages, sum(waits.values()), end)
    return device, kind, *numbers, named


def as_dicts(tracer: Tracer) -> dict[str, Any]:
    """The rows for --json."""
    rows = ("device", "kind", "busy_us", "messages_us", "waits_us", "end_us", "waits_for")
    blamed = ("device", "measured_us", "simulated_us", "what", "line")
    links = ("from", "to", "messages", "bytes", "moving_us", "waiting_us")
    tables = (
        ("trace", rows, tracer.rows),
        ("links", links, tracer.links),
        ("blamed", blamed, tracer.blamed),
    )
    made: dict[str, Any] = {
        title: [dict(zip(names, row, strict=True)) for row in found]
        for title, names, found in tables
        if found is not None
    }
    if tracer.kept:
        made["measured"] = {"kernels": tracer.kept[0], "file": str(tracer.kept[1])}
    return made
