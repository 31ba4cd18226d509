"""`graphc run --trace`: the trace file, and a table that sets a simulation beside what was
measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.record import record

if TYPE_CHECKING:
    from graphc.config import Config
    from graphc.frontend.engine import Built
    from graphc.passes.timeline import Timeline
    from graphc.runtime.execute import Executable
    from graphc.runtime.trace import Trace

COLUMNS = ["device", "", "busy us", "messages us", "waits us", "end us", "waits for"]


@record
class Tracer:
    """Runs an executable; with a path the run is traced, and `rows` says what each device did."""

    path: Path | None
    config: Config | None = None
    rows: list[tuple[Any, ...]] | None = None

    def run(self, executable: Executable, arrays: list[Any], built: Built | None = None) -> Any:
        """The results."""
        if self.path is None:
            return executable.run(arrays)
        from graphc.runtime.trace import trace, write

        results, found = trace(executable, arrays)
        write(found, self.path, titles(built) if built is not None else {})
        self.rows = measured_rows(found)
        if built is not None and self.config is not None:
            self.rows += simulated_rows(built, self.config)
            self.rows.sort(key=lambda row: found.devices.index(row[0]))
        return results


def titles(built: Built) -> dict[str, str]:
    """What the kernel of each node computes."""
    from graphc.frontend.dump import kernel_title
    from graphc.ir.verify import with_blocks

    nodes = [node for graph in with_blocks(built.program) for node in graph.nodes]
    return {repr(node): kernel_title(node, repr(node)) for node in nodes}


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


def simulated_rows(built: Built, config: Config) -> list[tuple[Any, ...]]:
    """The same of a simulation with the costs that the configuration names."""
    from graphc.ir.place import parse_device
    from graphc.passes.measured import cost_model
    from graphc.passes.simulate import simulate

    devices = tuple(map(parse_device, config.devices))
    found: Timeline = simulate(built.program, cost_model(devices, config), in_order=True)
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


def _row(
    device: str, kind: str, busy: float, messages: float, waits: dict[str, float], end: float
) -> tuple[Any, ...]:
    named = ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in waits.items())
    numbers = [round(s * 1e6, 1) for s in (busy, messages, sum(waits.values()), end)]
    return device, kind, *numbers, named


def as_dicts(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The rows for --json."""
    names = ("device", "kind", "busy_us", "messages_us", "waits_us", "end_us", "waits_for")
    return [dict(zip(names, row, strict=True)) for row in rows]
