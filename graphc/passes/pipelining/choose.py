"""choose: how many stages and chunks, which schedule and which checkpoints.

All combinations are simulated with the costs of their own cells; the fastest that fits into memory
is taken, and the others are kept to say why.

    2 stages  8 chunks  1f1b   never        1.24 ms   80 MB       taken
    4 stages  8 chunks  1f1b   never        1.31 ms   44 MB       slower
    1 stage   1 chunk   gpipe  never        1.20 ms  210 MB       does not fit
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.ir.graph import Node
from graphc.ir.place import Device
from graphc.ops.control.pipelined import BALANCES, CHECKPOINTS
from graphc.passes.pipelining import cut
from graphc.passes.pipelining.cells import Cells, Loss, cells_of, parts_of
from graphc.passes.pipelining.predict import Prediction, predict
from graphc.passes.pipelining.timetable import Action, Timetable, timetable
from graphc.passes.placement.cost import CostModel
from graphc.passes.reasons import duration

MOST_CHUNKS = 64
SCHEDULES = ("1f1b", "gpipe", "zb-h1", "interleaved")


@record(frozen=True, eq=False)
class StageCost:
    """What a stage does for one chunk: seconds by kind of action, seconds until its results are on
    the next device, and bytes: of parameters, of what it reads, and of what it keeps inside."""

    seconds: dict[str, float]
    sent: float
    params: int
    inputs: int
    inside: int

    def scaled(self, share: float, launch: float) -> StageCost:
        """The same for a chunk of other length; `launch` seconds of each action stay."""
        seconds = {
            kind: min(launch, took) + max(took - launch, 0.0) * share
            for kind, took in self.seconds.items()
        }
        return StageCost(
            seconds,
            self.sent * share,
            self.params,
            round(self.inputs * share),
            round(self.inside * share),
        )


def stage_cost(loss: Loss, cells: Cells, cost: CostModel, device: Device) -> StageCost:
    """The cost of a stage by the cost model, fusion left out of account."""

    def total(nodes: Sequence[Node]) -> float:
        return sum(cost.compute(n, device) for n in nodes if n not in cells.fixed)

    early = [n for n in cells.backward if n not in cells.weights]
    late = [n for n in cells.backward if n in cells.weights]
    seconds = {
        "F": total(cells.forward),
        "R": total([n for n in cells.forward if n in cells.again]),
        "I": total(early),
        "W": total(late),
        "B": total(cells.backward),
    }
    made = set(cells.forward)
    kept = {n for node in cells.backward for n in node.inputs if n in made and n not in cells.fixed}
    read = [n for n, p in zip(cells.inputs, cells.params) if p not in cells.fixed]
    params = [n for n in cells.inputs if n in loss.graph.params and not loss.varies(n)]
    link = cost.link(device, device)
    return StageCost(
        seconds,
        link.seconds(sum(n.nbytes for n in cells.outputs)) if cells.outputs else 0.0,
        sum(n.nbytes for n in params),
        sum(n.nbytes for n in read),
        sum(n.nbytes for n in kept),
    )


def predicted(table: Timetable, costs: Sequence[StageCost]) -> Prediction:
    """The timeline of a schedule of stages with these costs."""

    def transfer(source: Action, target: Action) -> float:
        return costs[min(source.stage, target.stage)].sent

    return predict(table, lambda action: costs[action.stage].seconds[action.kind], transfer)


def device_bytes(table: Timetable, costs: Sequence[StageCost]) -> list[int]:
    """The bytes of each device: parameters and their gradients, what is kept of all chunks that a
    stage holds, and what the chunks that are run again have been given."""
    found = [0] * table.devices
    for stage, home in enumerate(table.home):
        each = costs[stage]
        again = table.recomputed(stage)
        found[home] += cut.SCALE * each.params + table.held(stage) * (each.inputs + each.inside)
        found[home] += again * each.inputs
    return found


# ------------------------------------------------------------------------------------ choosing


@record(frozen=True, eq=False)
class Choice:
    """One way to run a loss in stages, and what it would take."""

    stages: int
    chunks: int
    schedule: str
    checkpoint: str
    seconds: float
    bytes: int  # of the device that needs most
    fits: bool
    balance: str  # what its cut makes equal

    def __str__(self) -> str:
        shown = f"{self.stages:3} stages {self.chunks:3} chunks  {self.schedule:11} "
        shown += f"{self.checkpoint:11} {duration(self.seconds):>9} {self.bytes:>13,} bytes"
        return shown if self.balance == "time" else f"{shown} of equal stages"


def choices(
    loss: Loss,
    cost: CostModel,
    devices: Sequence[Device],
    share: float,
    rows: int,
    limit: float | None,
) -> list[Choice]:
    """All ways, the best one first; `share` of the `rows` of the batch is what the loss was
    traced on.  With a `limit` of bytes for a device, stages are cut by time and by bytes; raises
    GraphError if nothing fits."""
    found = []
    counts = [
        k for k in range(1, 2 * len(devices) + 1) if k <= len(devices) or k % len(devices) == 0
    ]
    most = len(cut.together(loss))
    ways = BALANCES[: 1 if limit is None else 2]
    for stages, balance in product((k for k in counts if k <= most), ways):
        if stages == 1 and balance != "time":
            continue
        stage, _ = cut.by_count(loss, stages, cost, balance)
        cells = cells_of(loss, parts_of(loss, stage, stages))
        known = [stage_cost(loss, each, cost, devices[0]) for each in cells]
        found += _of_stages(known, cost, devices, share, rows, limit, balance)
    if not any(choice.fits for choice in found):
        least = min(found, key=lambda choice: choice.bytes)
        raise GraphError(
            f"no way to run it in stages fits into {limit:,.0f} bytes a device",
            details=(f"the least is {least.bytes:,} bytes:", str(least)),
            hint="give more devices, or more chunks",
        )
    return sorted(found, key=lambda c: (not c.fits, c.seconds, c.bytes, c.stages, c.chunks))


def _of_stages(
    known: Sequence[StageCost],
    cost: CostModel,
    devices: Sequence[Device],
    share: float,
    rows: int,
    limit: float | None,
    balance: str,
) -> list[Choice]:
    """The ways with one cut."""
    stages, launch = len(known), cost.rates(devices[0]).launch
    homes = [stage % len(devices) for stage in range(stages)]
    names = [n for n in SCHEDULES if (n == "interleaved") == (stages > len(devices))]
    counts = [2**k for k in range(MOST_CHUNKS.bit_length()) if 2**k <= min(rows, MOST_CHUNKS)]
    made = []
    for chunks, name in product(counts, names):
        scaled = [each.scaled(-(-rows // chunks) / rows / share, launch) for each in known]
        base = timetable(name, stages, chunks, homes)
        for mode in CHECKPOINTS:
            table = base.checkpointed(mode)
            seconds = predicted(table, scaled).makespan
            needed = max(device_bytes(table, scaled))
            fits = limit is None or needed <= limit
            made.append(Choice(stages, chunks, name, mode, seconds, needed, fits, balance))
    return made


def reasons(found: Sequence[Choice], count: int = 8) -> str:
    """Why the first one was taken: it, and the best of those that were not."""
    first = found[0]
    lines = [f"{first}  taken"]
    for choice in found[1:count]:
        slower = (
            f"{choice.seconds / first.seconds - 1:.1%} slower" if first.seconds else "no faster"
        )
        lines.append(f"{choice}  {slower if choice.fits else 'does not fit'}")
    faster = [c for c in found if not c.fits and c.seconds < first.seconds]
    if faster:
        lines.append(f"{min(faster, key=lambda c: c.seconds)}  does not fit")
    return "\n".join(lines)
