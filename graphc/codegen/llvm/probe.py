"""What LLVM says of this machine and of itself, kept in the cache.

Loading LLVM takes 16 ms and 40 MiB, and a program whose kernels are all in the cache needs nothing
else of it.

What is kept belongs to a CPU as the system and the C library describe it, and to one file of LLVM's
library: a cache that several machines share has an answer for each, and so has an emulator.
"""

from __future__ import annotations

import json
from functools import cache as once
from importlib.util import find_spec
from pathlib import Path

from graphc.base.record import record
from graphc.codegen import cache
from graphc.seams.glibc import usable_features

_CPUINFO = Path("/proc/cpuinfo")
_X86 = frozenset(("vendor_id", "cpu family", "model", "model name", "stepping", "flags"))
_ARM = frozenset(f"CPU {name}" for name in ("implementer", "architecture", "variant", "part"))
_TELLING = _X86 | _ARM | {"Features"}
_COMPLETE = ("flags", "Features")  # one of them there is for every kind of CPU


@record(frozen=True)
class Probe:
    """LLVM's name and features of the CPU, the triple of this process, and LLVM's own version."""

    cpu: str
    features: str
    triple: str
    compiler: str


@once
def probe() -> Probe:
    """The answers for this machine, from the cache or from LLVM."""
    key = identity()
    store = cache.default()
    entry = store.get([key]).get(key) if key else None
    found = _kept(entry.code) if entry else None
    if found is not None:
        return found
    made = _ask()
    if key:
        fields = {name: getattr(made, name) for name in Probe.__match_args__}
        store.put(json.dumps(fields).encode(), {key: "machine"})
    return made


def identity() -> str | None:
    """A key that tells this CPU and this LLVM from any other; None where that cannot be told."""
    found = find_spec("llvmlite")
    try:
        lines = set(_CPUINFO.read_text().splitlines())
        folder = Path(found.origin or "").parent / "binding" if found else Path()
        files = [path for path in folder.iterdir() if "llvmlite" in path.name]
        library = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    except OSError:
        return None
    fields = sorted(line for line in lines if line.partition(":")[0].strip() in _TELLING)
    if not library or not any(line.startswith(_COMPLETE) for line in fields):
        return None
    return cache.digest("machine", *fields, *usable_features(), *sorted(library))


def _kept(data: bytes) -> Probe | None:
    """The answers in an entry of the cache; None if that holds anything else."""
    try:
        fields = json.loads(data)
    except ValueError:
        return None
    whole = isinstance(fields, dict) and fields.keys() == {*Probe.__match_args__}
    return Probe(**fields) if whole and all(isinstance(v, str) for v in fields.values()) else None


def _ask() -> Probe:
    import llvmlite
    import llvmlite.binding as llvm

    return Probe(
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        llvm.get_process_triple(),
        f"llvmlite {llvmlite.__version__} llvm {llvm.llvm_version_info}",
    )
