"""How a run on several devices fails.

The first failure wins: it is written down, and the cancel flags of all frames of the team are set.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    I64,
    RELAXED,
    RELEASE,
    SEQ_CST,
    Int32,
    Number,
    Struct,
    Writer,
    native,
)
from graphc.codegen.runtime.channels import device_of, notify, spot_open
from graphc.runtime.load.layouts import DeviceWords, FrameWords, TeamWords


def frame_of(spot: Struct[DeviceWords]) -> Struct[FrameWords]:
    return spot.frame.to(FrameWords)


@native(is_public=True)
def team_open(f: Writer, team: Struct[TeamWords]) -> None:
    """Prepare a team.  It counts as failed until its first run, which empties all channels."""
    if f.module.has_threads:
        team.at("failed").store(1, RELAXED)
        with f.loop(0, team.devices) as d:
            spot_open(f, device_of(team, d))


@native(is_public=True)
def team_stop(f: Writer, team: Struct[TeamWords]) -> None:
    """Set the cancel flags of all devices, and wake them."""
    if f.module.has_threads:
        with f.loop(0, team.devices) as d:
            spot = device_of(team, d)
            frame_of(spot).at("cancel").store(1, SEQ_CST)
            notify(f, spot)


@native(is_public=True)
def team_fail(f: Writer, team: Struct[TeamWords], device: Number, status: Int32) -> None:
    """A device has failed: if it is the first, note what and where, and stop the others."""
    if f.module.has_threads:
        with f.when(team.at("failed").cas(0, 1, SEQ_CST, SEQ_CST)):
            spot = device_of(team, device)
            team.row = spot.first_row + frame_of(spot).row
            team.at("status").store(status.cast("sext", I64), RELEASE)
            team_stop(f, team)
