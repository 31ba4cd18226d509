"""Costs that were measured: rates of device types, and seconds of kernels.

One JSON file in the cache folder, which `graphc devices --calibrate` and profiled runs write:

    {"format": 1,
     "links": {"worker": {"latency": 1e-5, "bandwidth": 4e9}},
     "devices": {"cpu": {"flops": 2.4e11, "bytes": 1.1e10, "launch": 4e-7,
                         "latency": 2e-6, "bandwidth": 9e9}},
     "seconds": {"matmul(f32[64,64],f32[64,64]) -> f32[64,64]": {"cpu": 5.1e-6}},
     "runs": {"matmul(f32[64,64],f32[64,64]) -> f32[64,64]":
                {"cpu": {"count": 40, "latest": [5.1e-6, 5.3e-6, 5.1e-6]}}}}

`seconds` are the median of the `latest` runs (at most 31 of `count`); where there are no runs, what
was given stands.  A key is an op with its types (`cost.key_of`), the ops that one kernel does
together, or a kernel with a digest of what it computes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.codegen import cache
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.place import Device
from graphc.passes.placement.cost import CostModel, Table
from graphc.passes.tuning import tuned
from graphc.runtime.devices.registry import LARGEST, Kind, Link, Rates, usable
from graphc.runtime.devices.registry import kinds as registered
from graphc.runtime.files.files import write_atomically

FORMAT = 1
FILE = "costs.json"
MOST_BYTES = 1 << 26
LEAST_LATENCY = 1e-8  # a line of memory needs longer from one core to another
MOST_BANDWIDTH = 1e14  # no memory moves so many bytes per second
_FIELDS = ("flops", "bytes", "launch", "latency", "bandwidth")
_DAMAGES = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@record(frozen=True)
class Runs:
    """Seconds of one kernel on one type of device: how many runs there were, and the latest."""

    count: int
    latest: tuple[float, ...]

    def then(self, later: Runs) -> Runs:
        """These runs, followed by later ones."""
        return Runs(self.count + later.count, (*self.latest, *later.latest)[-tuned.measured_runs :])


@record(frozen=True)
class Measured:
    """What is known of this machine: rates per device type, seconds per kernel and device type, the
    runs that these are medians of, and the links between tasks of a job."""

    kinds: Mapping[str, Kind]
    seconds: Table
    runs: Mapping[str, Mapping[str, Runs]] = field(default_factory=dict)
    links: Mapping[str, Link] = field(default_factory=dict)


def of_runs(found: Mapping[tuple[str, str], Sequence[float]]) -> Measured:
    """What the seconds of some runs say, by key and type of device."""
    seconds: dict[str, dict[str, float]] = {}
    runs: dict[str, dict[str, Runs]] = {}
    for (key, kind), times in found.items():
        kept = runs.setdefault(key, {})[kind] = Runs(
            len(times), tuple(times[-tuned.measured_runs :])
        )
        seconds.setdefault(key, {})[kind] = float(np.median(kept.latest))
    return Measured({}, seconds, runs)


def cost_model(devices: Iterable[Device], config: Config) -> CostModel:
    """The cost model that a configuration asks for.

    Calibrated rates are used wherever there are any; measured kernels only with `costs="measured"`,
    or from the file that it names.  Raises GraphError for a file that is none.
    """
    if config.costs in ("static", "measured"):
        found = load(default_path(), missing=True)
    else:
        found = load(Path(config.costs))
    table = {} if config.costs == "static" else found.seconds
    return CostModel(devices, table, found.kinds, found.links)


def default_path() -> Path:
    """The file in the cache folder."""
    return cache.default().root / FILE


def load(path: Path, missing: bool = False) -> Measured:
    """Read a file of measured costs; with `missing`, one that is not there or damaged is empty.

    Raises GraphError.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError("too large")
        return _measured(json.loads(path.read_text()))
    except _DAMAGES as error:
        if missing:
            return Measured({}, {})
        raise GraphError(
            f"cannot read measured costs from {path}: {error}",
            hint="graphc devices --calibrate writes such a file",
        ) from None


def _measured(found: dict[str, Any]) -> Measured:
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']!r}")
    kinds = {name: _kind(name, values) for name, values in found["devices"].items()}
    seconds = {
        key: {device: _cost(value) for device, value in row.items()}
        for key, row in found["seconds"].items()
    }
    runs = {
        key: {device: _runs(value) for device, value in row.items()}
        for key, row in found.get("runs", {}).items()
    }
    links = {
        job: _link(_cost(row["latency"]), _cost(row["bandwidth"]))
        for job, row in found.get("links", {}).items()
    }
    links = {job: link for job, link in links.items() if is_believable(link)}
    return Measured(kinds, seconds, runs, links)


def is_believable(link: Link) -> bool:
    """Whether a machine can have such a link: on a busy one, what is measured may be no time."""
    return link.latency >= LEAST_LATENCY and link.bandwidth <= MOST_BANDWIDTH


def _link(latency: float, bandwidth: float) -> Link:
    if bandwidth < 1 / LARGEST:
        raise ValueError(f"a link of {bandwidth} bytes per second")
    return Link(latency, bandwidth)


def _kind(name: str, values: Mapping[str, Any]) -> Kind:
    """A type of device; another program may have registered it."""
    flops, nbytes, launch, latency, bandwidth = (_cost(values[f]) for f in _FIELDS)
    rates, link = Rates(flops, nbytes, launch), Link(latency, bandwidth)
    if not usable(rates, link):
        raise ValueError(f"{rates} and {link} of {name} are too large or too small")
    known = next((kind for kind in registered() if kind.type == name), None)
    if name == "cpu" and known is not None and not is_believable(link):
        link = known.link
    return Kind(name, rates, link, known.runs_on if known is not None else "cpu")


def _runs(value: Mapping[str, Any]) -> Runs:
    latest = tuple(map(_cost, value["latest"]))[-tuned.measured_runs :]
    if not latest or not int(value["count"]) >= len(latest):
        raise ValueError(f"{value['count']!r} runs, {len(latest)} of them kept")
    return Runs(int(value["count"]), latest)


def _cost(value: float) -> float:
    if not 0 <= float(value) <= LARGEST:
        raise ValueError(f"{value!r} is no cost")
    return float(value)


def store(measured: Measured, path: Path | None = None) -> Path:
    """Write what was measured: runs add to the known runs of a kernel, all else replaces it.

    Raises GraphError for a file that cannot be written.
    """
    path = path or default_path()
    known = load(path, missing=True)
    kinds = {**known.kinds, **measured.kinds}
    seconds = {key: dict(row) for key, row in known.seconds.items()}
    runs = {key: dict(row) for key, row in known.runs.items()}
    for key, row in measured.seconds.items():
        kept = runs.setdefault(key, {})
        for device, given in row.items():
            before, later = kept.pop(device, Runs(0, ())), measured.runs.get(key, {}).get(device)
            if later is not None:
                kept[device] = before.then(later)
                given = float(np.median(kept[device].latest))
            seconds.setdefault(key, {})[device] = given
    devices = {name: dict(zip(_FIELDS, _values(kinds[name]))) for name in sorted(kinds)}
    listed = {
        key: {d: {"count": r.count, "latest": r.latest} for d, r in sorted(row.items())}
        for key, row in sorted(runs.items())
        if row
    }
    ordered = {key: dict(sorted(row.items())) for key, row in sorted(seconds.items())}
    links = {
        job: {"latency": link.latency, "bandwidth": link.bandwidth}
        for job, link in sorted({**known.links, **measured.links}.items())
    }
    found = {"format": FORMAT, "links": links, "devices": devices}
    text = json.dumps({**found, "seconds": ordered, "runs": listed}, indent=1)
    try:
        os.makedirs(path.parent, mode=0o700, exist_ok=True)
    except OSError as error:
        raise GraphError(f"cannot write {path}: {error.strerror}") from None
    write_atomically(path, [f"{text}\n".encode()])
    return path


def _values(kind: Kind) -> tuple[float, ...]:
    rates, link = kind.rates, kind.link
    return rates.flops, rates.bytes, rates.launch, link.latency, link.bandwidth
