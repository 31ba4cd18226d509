"""The types of devices there are: how fast each computes and moves data, and what runs its code.

    cpu    cpu:0 .. cpu:63, virtual devices of this machine: a worker thread and an arena each
    null   computes nothing: every result is zeros, at once
    sim    runs on the CPU; how long that took is what its rates say
    gpu    NVIDIA GPUs, or one that is simulated

Others are registered from outside.  Times are in seconds, rates per second.
"""

from __future__ import annotations

import math
import os
import re

from graphc.base.record import record
from graphc.errors import GraphError

MOST_DEVICES = 64
LARGEST = 1e30  # of rates and seconds
_NAME = re.compile(
    r"(?:(?P<where>/job:\w+(?:/task:[0-9]{1,9})?)/device:)?(?P<type>[A-Za-z_]\w*):(?P<index>[0-9]{1,9})"
)
RUNNERS = ("cpu", "null", "cuda")


@record(frozen=True)
class Rates:
    """How fast a device computes: flops and bytes of memory per second, seconds per kernel call."""

    flops: float
    bytes: float
    launch: float

    def seconds(self, flops: float, nbytes: float) -> float:
        """Of one kernel: arithmetic and memory traffic overlap, the call comes on top."""
        return max(flops / self.flops, nbytes / self.bytes) + self.launch


@record(frozen=True)
class Link:
    """How fast values leave or reach a device: seconds per transfer, bytes per second."""

    latency: float
    bandwidth: float

    def seconds(self, nbytes: float) -> float:
        return self.latency + nbytes / self.bandwidth

    def joined(self, other: Link) -> Link:
        """The way between two devices, as slow as the slower of their links."""
        return Link(max(self.latency, other.latency), min(self.bandwidth, other.bandwidth))


@record(frozen=True)
class Kind:
    """A type of device. `runs_on` names what executes its kernels: "cpu" or "null"."""

    type: str
    rates: Rates
    link: Link
    runs_on: str = "cpu"


_INSTANT = Kind("null", Rates(math.inf, math.inf, 0.0), Link(0.0, math.inf), "null")
_BUILT_IN = {
    "cpu": Kind("cpu", Rates(1e11, 2e10, 5e-7), Link(2e-6, 1e10)),
    "null": _INSTANT,
    "sim": Kind("sim", Rates(1e12, 1e11, 1e-6), Link(5e-6, 2e10)),
    "gpu": Kind("gpu", Rates(2e13, 1e12, 5e-6), Link(1e-5, 2e10), "cuda"),
}
_KINDS = dict(_BUILT_IN)


def register_device(type: str, rates: Rates, link: Link, runs_on: str = "cpu") -> Kind:
    """Make `type:0`, `type:1`, ... devices that graphs are compiled for.

    A type that was registered before is replaced. Raises GraphError for a built-in type, for a name
    that is none, and for rates that are not positive.
    """
    name = isinstance(type, str) and type.isidentifier() and type.isascii()
    if not name or type in ("job", "task", "device"):
        raise GraphError(f"{type!r} cannot be a type of device", hint="use a name such as tpu")
    for value, kind in ((rates, Rates), (link, Link)):
        if not isinstance(value, kind):
            raise GraphError(
                f"{type} needs {kind.__name__}, got {value!r}",
                hint="Rates(flops, bytes, launch) and Link(latency, bandwidth)",
            )
    if type in _BUILT_IN:
        raise GraphError(f"the device type {type} is built in", hint="choose another name")
    if runs_on not in RUNNERS:
        raise GraphError(f"a device runs on {' or '.join(RUNNERS)}, got {runs_on!r}")
    if not usable(rates, link):
        raise GraphError(
            f"the rates of {type} must be positive numbers", details=(repr(rates), repr(link))
        )
    made = _KINDS[type] = Kind(type, rates, link, runs_on)
    return made


def usable(rates: Rates, link: Link) -> bool:
    """Are these positive numbers whose quotients and sums are numbers, too?"""
    speeds, delays = (rates.flops, rates.bytes, link.bandwidth), (rates.launch, link.latency)
    return (
        all(isinstance(number, int | float) for number in (*speeds, *delays))
        and all(1 / LARGEST <= speed <= LARGEST or speed == math.inf for speed in speeds)
        and all(0 <= delay <= LARGEST for delay in delays)
    )


def kind_of(type: str) -> Kind:
    """A type of device. Raises GraphError for one that is not registered."""
    found = _KINDS.get(type)
    if found is None:
        listed = f"there are {', '.join(sorted(_KINDS))}; register_device adds others"
        raise GraphError(f"there is no device of type {type!r}", hint=meant_type(type) or listed)
    return found


def meant_type(type: str) -> str | None:
    """What to say to a type of device that has another name here, or is written otherwise."""
    if type.lower() in ("cuda", "nvidia"):
        return "GPUs are called gpu:0, gpu:1, ..."
    for name in sorted(_KINDS):
        if type.lower() == name != type:
            return f"did you mean {name}? upper and lower case differ"
        if type.lower().rstrip("0123456789") == name != type:
            return f"did you mean {name}:{type[len(name) :]}?"
    from graphc.base.hints import meant  # only for those who mistype

    near = None if type in _KINDS else meant(type, _KINDS)
    return f"{near} register_device adds others" if near else None


def local_name(name: object) -> str:
    """A device as executables call it: "cpu:1" for "/job:localhost/device:cpu:1". Raises
    GraphError for what is not the name of one device that exists."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise GraphError(f"{name!r} is not the name of a device", hint='write for example "cpu:1"')
    check_device(found["type"], int(found["index"]))
    where = found["where"]
    return f"{found['type']}:{found['index']}" if where in (None, "/job:localhost") else found[0]


def kinds() -> tuple[Kind, ...]:
    """Every type of device, by name."""
    return tuple(_KINDS[name] for name in sorted(_KINDS))


def simulated() -> bool:
    """Are GPUs simulated in this process?"""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")


def present_chip() -> str:
    """What code for a GPU is made for where no target is given: the simulator, or the chip of the
    first GPU; a Hopper where there is none.
    """
    if simulated():
        return "simulator"
    from graphc.runtime.cuda.driver import first_chip

    return first_chip() or "sm_90"


def check_device(type: str, index: int) -> Kind:
    """The kind of a device that exists. Raises GraphError."""
    try:
        kind = kind_of(type)
    except GraphError as error:
        text = f"there is no device {type}:{index}: no device of type {type!r} is registered"
        raise GraphError(text, hint=error.hint) from None
    if index >= MOST_DEVICES:
        raise GraphError(
            f"there is no device {type}:{index}",
            hint=f"devices of a type are numbered from 0 to {MOST_DEVICES - 1}",
        )
    return kind
