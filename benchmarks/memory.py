"""How far calls raise the resident size of a process, in MiB.

A process has one case and one implementation.  What a call needs is

    first   the peak of preparation and first call above the state before them, libraries imported
    warm    the peak of a later call above the state before that call
    kept    what stays between calls: the state before that call above the state before the first

so a later call takes kept + warm at its peak: temporaries that an implementation allocates anew are
in `warm`, buffers that it holds, and code that it loaded, in `kept`.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 1 << 20
WARM_CALLS = 3
_RESET_PEAK = "5"  # what Linux takes in clear_refs


def status_mib(field: str) -> float:
    """VmRSS or VmHWM. Not ru_maxrss: a child inherits that from the process it came from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def settle() -> None:
    """Free what is not in use, so that a later call has to ask for it again."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


class Watch:
    """Watches the resident size from now on."""

    def __init__(self) -> None:
        settle()
        self.before = status_mib("VmRSS")
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)

    def peak(self) -> float:
        """The highest size since, above that at the beginning."""
        return max(0.0, status_mib("VmHWM") - self.before)


def later(run: Callable[[], Any], start: Watch) -> dict[str, float]:
    """What a warm call needs, and what is kept since `start`."""
    for _ in range(WARM_CALLS):
        run()
    watch = Watch()
    result = run()  # noqa: F841 - its memory counts
    return {"warm": watch.peak(), "kept": max(0.0, watch.before - start.before)}
