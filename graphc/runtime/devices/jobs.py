"""Who runs the tasks of a job: other processes, or where nobody does threads of this one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphc.errors import GraphError

if TYPE_CHECKING:
    from graphc.runtime.cluster.local_workers import LocalCluster

_TASK = re.compile(r"/job:(?P<job>\w+)/task:(?P<task>[0-9]{1,9})/device:\w+:[0-9]+")

clusters: dict[str, LocalCluster] = {}  # by the job that they serve


def task_of(device: str) -> tuple[str, int] | None:
    """The job and the task of a device; None for one of this process."""
    found = _TASK.fullmatch(device)
    return (found["job"], int(found["task"])) if found else None


def serving(devices: Iterable[str]) -> LocalCluster | None:
    """The cluster that serves some of these devices, if there is one. Raises GraphError for devices
    of two clusters."""
    jobs = {place[0] for device in devices if (place := task_of(device)) is not None}
    found = [clusters[job] for job in sorted(jobs) if job in clusters]
    if len(found) > 1:
        raise GraphError(
            "a program runs on the devices of one cluster",
            details=tuple(repr(each) for each in found),
        )
    return found[0] if found else None
