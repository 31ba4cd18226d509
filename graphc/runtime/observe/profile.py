"""Where the time of a run goes: how often each row of the tables ran, and how long in all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphc.base.record import record
from graphc.errors import LimitError
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.phased_executable import PhasedExecutable
from graphc.runtime.load.program import Origin
from graphc.runtime.observe.trace import Trace, trace

MOST_ROWS = 10_000_000


@record
class RowTime:
    """What one row of a table cost over a run: how often it ran, and its seconds in all.

    `kernel` is the kernel that a row calls, else what the row does; a row that waits for a message
    is listed as "wait" and as "transfer".
    """

    device: str
    row: int
    kernel: str
    origin: Origin | None
    count: int = 0
    seconds: float = 0.0


def profile(
    executable: Executable | PhasedExecutable, arrays: Sequence[np.ndarray]
) -> list[RowTime]:
    """Run once on flat arrays; the rows that ran and did more than steer, in table order.

    Raises what `Executable.run` raises, and LimitError for a run of more than `MOST_ROWS` rows.
    """
    times: list[RowTime] = []

    def measured(program: Executable, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs, found = trace(program, given, room=MOST_ROWS)
        times.extend(_times(found))
        return outputs

    if isinstance(executable, PhasedExecutable):
        executable.run_by(measured, arrays)
    else:
        measured(executable, arrays)
    return times


def _times(found: Trace) -> list[RowTime]:
    if found.dropped:
        raise LimitError(f"the run has more than {MOST_ROWS} rows", hint="profile fewer rounds")
    times: dict[tuple[int, int, str], RowTime] = {}
    for event in found.events:
        key = event.device, event.row, event.kind
        known = times.get(key)
        if known is None:
            name = event.name if event.kind in ("kernel", "copy") else event.kind
            device = found.devices[event.device]
            known = times[key] = RowTime(device, event.row, name, event.origin)
        known.count += 1
        known.seconds += event.seconds
    return [times[key] for key in sorted(times)]
