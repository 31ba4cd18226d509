"""Where a node runs and where its result lies: None -> Constraint -> Device -> Buffers.

@?/device:gpu           any gpu            @?/job:worker/task:17~b~c  and colocated: groups b, c
@/job:localhost/device:cpu:0                          a device
@/job:localhost/device:cpu:0[4096:512]                and a buffer: arena offset, bytes
@/job:localhost/device:cpu:0[r0+0:512]                base registers: c constants, pK, rK, vK
@/job:localhost/device:cpu:0[(8*n+64):(4*n)]          formulas of sizes that are open
@/job:localhost/device:cpu:0[0:512;512:4096]          and memory that is only used while it runs
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.ir.types import Dimension, symbol

_SPEC = re.compile(
    r"(?:/job:(?P<job>\w+))?(?:/replica:[0-9]+)?(?:/task:(?P<task>[0-9]{1,9}))?"
    r"(?:/?(?:device:)?(?P<type>[A-Za-z_]\w*?)(?::(?P<index>[0-9]{1,9}|\*))?)?"
)
_BYTES = r"[0-9]{1,18}|\([\w.+*\-]{1,1000}\)"
_FACTOR = r"(?:[A-Za-z_][\w.]*|[0-9]{1,18})"
_TERM = re.compile(rf"([+-]?)({_FACTOR}(?:\*{_FACTOR})*)")
_BUFFER = re.compile(rf"(?:(c|[prv][0-9]{{1,9}})\+)?({_BYTES}):({_BYTES})")


@record(frozen=True)
class Spec:
    """A device name with any part left open. `matches` says whether a full name falls under it."""

    job: str | None = None
    task: int | None = None
    type: str | None = None
    index: int | None = None

    def matches(self, device: Device) -> bool:
        pairs = (
            (self.job, device.job),
            (self.task, device.task),
            (self.type, device.type),
            (self.index, device.index),
        )
        return all(mine is None or mine == theirs for mine, theirs in pairs)

    def __str__(self) -> str:
        text = f"/job:{self.job}" if self.job else ""
        text += f"/task:{self.task}" if self.task is not None else ""
        if self.type:
            text += f"/device:{self.type}"
            text += f":{self.index}" if self.index is not None else ""
        return text


@record(frozen=True)
class Device:
    """A full device name; devices are ordered by job, task, type and index."""

    job: str
    task: int | None
    type: str
    index: int

    def __lt__(self, other: Device) -> bool:
        mine, theirs = ((d.job, d.task, d.type, d.index) for d in (self, other))
        return mine < theirs  # tasks are all named, or none is

    def __str__(self) -> str:
        task = f"/task:{self.task}" if self.task is not None else ""
        return f"/job:{self.job}{task}/device:{self.type}:{self.index}"

    @property
    def short(self) -> str:
        """The name as far as it is needed: "cpu:1" of this machine, else all of it."""
        local = self.job == "localhost" and self.task is None
        return f"{self.type}:{self.index}" if local else str(self)


@record(frozen=True)
class Constraint:
    """What the user asked for: a device spec, colocation groups (joined by `~`), or both."""

    spec: Spec | None = None
    group: str | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self.group.split("~")) if self.group else ()

    def beside(self, *groups: str) -> Constraint:
        """The same, in these groups, too."""
        every = dict.fromkeys((*self.groups, *groups))
        return Constraint(self.spec, "~".join(every) or None)

    def __str__(self) -> str:
        return f"?{self.spec or ''}" + (f"~{self.group}" if self.group else "")


@record(frozen=True)
class Region:
    """One leaf's bytes: base register (arena, c, pK, rK, vK), byte offset and length.

    These are formulas where sizes are open.
    """

    base: str
    offset: int
    nbytes: int

    def __str__(self) -> str:
        prefix = "" if self.base == "arena" else f"{self.base}+"
        return f"{prefix}{_bytes_text(self.offset)}:{_bytes_text(self.nbytes)}"


def _bytes_text(value: object) -> str:
    """A number, or a formula in parentheses: no name in it is a base register."""
    text = str(value)
    return text if text.isdigit() else f"({text})"


@record(frozen=True)
class Buffer:
    """A device, one memory region per leaf of the value, and what the node needs while it runs."""

    device: Device
    regions: tuple[Region, ...]
    scratch: Region | None = None

    def __str__(self) -> str:
        scratch = f";{self.scratch}" if self.scratch else ""
        return f"{self.device}[{','.join(map(str, self.regions))}{scratch}]"


Place = Constraint | Device | Buffer


@lru_cache(4096)
def parse_spec(text: str) -> Spec:
    """A full or partial device name: "/job:worker/task:17", "gpu", "cpu:1". Raises GraphError."""
    found = _SPEC.fullmatch(text)
    if not found or not text:
        raise GraphError(
            f"{text!r} is not a device name", hint='write "/job:localhost/device:cpu:0" or "cpu:0"'
        )
    index = found["index"]
    return Spec(
        found["job"],
        int(found["task"]) if found["task"] else None,
        found["type"],
        int(index) if index and index != "*" else None,
    )


@lru_cache(4096)
def parse_device(text: str) -> Device:
    """A full device name, "cpu:0" being short for "/job:localhost/device:cpu:0"."""
    spec = parse_spec(text)
    if spec.type is None:
        raise GraphError(f"{text!r} names no device", hint='write for example "cpu:0"')
    return Device(spec.job or "localhost", spec.task, spec.type, spec.index or 0)


@lru_cache(4096)
def parse_place(text: str) -> Place:
    """The text after `@`. Raises GraphError."""
    if text.startswith("?"):
        spec, _, group = text[1:].partition("~")
        return Constraint(parse_spec(spec) if spec else None, group or None)
    name, bracket, rest = text.partition("[")
    device = parse_device(name)
    if not bracket:
        return device
    if not rest.endswith("]"):
        raise GraphError(f"{rest!r} is not a buffer", hint="write [offset:bytes]")
    values, semicolon, scratch = rest.removesuffix("]").partition(";")
    regions = tuple(parse_region(part) for part in values.split(",") if values)
    return Buffer(device, regions, parse_region(scratch) if semicolon else None)


def parse_region(text: str) -> Region:
    """Base register, offset and length. Raises GraphError."""
    found = _BUFFER.fullmatch(text)
    if not found:
        raise GraphError(f"{text!r} is not a buffer", hint="write [offset:bytes]")
    return Region(found[1] or "arena", _bytes_of(found[2]), _bytes_of(found[3]))


def _bytes_of(text: str) -> Any:
    """The number, or the formula in parentheses. Raises GraphError for what is neither."""
    return int(text) if text.isdigit() else _formula(text[1:-1])


def _formula(text: str) -> Dimension:
    total: Dimension = 0
    position = 0
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None or (position and not found[1]):
            raise GraphError(f"{text!r} is not a formula of sizes", hint="write (8*n+64)")
        product: Dimension = -1 if found[1] == "-" else 1
        for factor in found[2].split("*"):
            product = product * (int(factor) if factor.isdigit() else symbol(factor))
        total = total + product
        position = found.end()
    return total


def variable_group(container: str, name: str) -> str:
    """The colocation group of what touches a variable."""
    return re.sub(r"[^\w.]", "_", f"{container}.{name}")


def device_of(place: Place | None) -> Device | None:
    """The device of a placed node."""
    if isinstance(place, Buffer):
        return place.device
    return place if isinstance(place, Device) else None
