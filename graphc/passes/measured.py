"""Costs that were measured: rates of device types, and seconds of kernels.

One JSON file in the cache folder, which `graphc devices --calibrate` and profiled runs write:

    {"format": 1,
     "devices": {"cpu": {"flops": 2.4e11, "bytes": 1.1e10, "launch": 4e-7,
                         "latency": 2e-6, "bandwidth": 9e9}},
     "seconds": {"matmul(f32[64,64],f32[64,64]) -> f32[64,64]": {"cpu": 5.1e-6}}}
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from graphc.codegen import cache
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.place import Device
from graphc.passes.cost import CostModel, Table
from graphc.record import record
from graphc.runtime.devices import Kind, Link, Rates, kind_of
from graphc.runtime.files import write_atomically

FORMAT = 1
FILE = "costs.json"
MOST_BYTES = 1 << 26
_FIELDS = ("flops", "bytes", "launch", "latency", "bandwidth")


@record(frozen=True)
class Measured:
    """What is known of this machine: rates per device type, seconds per kernel and device type."""

    kinds: Mapping[str, Kind]
    seconds: Table


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
    return CostModel(devices, table, found.kinds)


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
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if missing:
            return Measured({}, {})
        raise GraphError(
            f"cannot read measured costs from {path}: {error}",
            hint="graphc devices --calibrate writes such a file",
        ) from None


def _measured(found: dict[str, Any]) -> Measured:
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']!r}")
    kinds = {}
    for name, values in found["devices"].items():
        flops, nbytes, launch, latency, bandwidth = (_positive(values[f]) for f in _FIELDS)
        runs_on = kind_of(name).runs_on
        kinds[name] = Kind(name, Rates(flops, nbytes, launch), Link(latency, bandwidth), runs_on)
    seconds = {
        key: {device: _positive(value) for device, value in row.items()}
        for key, row in found["seconds"].items()
    }
    return Measured(kinds, seconds)


def _positive(value: float) -> float:
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{value!r} is no cost")
    return float(value)


def store(measured: Measured, path: Path | None = None) -> Path:
    """Write what was measured, over what was known of the same devices and kernels."""
    path = path or default_path()
    known = load(path, missing=True)
    kinds = {**known.kinds, **measured.kinds}
    seconds = {key: dict(row) for key, row in known.seconds.items()}
    for key, row in measured.seconds.items():
        seconds.setdefault(key, {}).update(row)
    devices = {name: dict(zip(_FIELDS, _values(kinds[name]))) for name in sorted(kinds)}
    text = json.dumps({"format": FORMAT, "devices": devices, "seconds": seconds}, indent=1)
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    write_atomically(path, [f"{text}\n".encode()])
    return path


def _values(kind: Kind) -> tuple[float, ...]:
    rates, link = kind.rates, kind.link
    return rates.flops, rates.bytes, rates.launch, link.latency, link.bandwidth
