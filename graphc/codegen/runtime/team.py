"""Runs on several devices: the caller's thread is the first, workers the others.

caller                                        worker
  running = devices - 1                         waits until it is posted
  lease a worker for every other device
  state = POSTED                       --->     walks the frame; a failure stops the team
  walks its own frame                           running - 1, the last one wakes the caller
  waits for running = 0                <---     turn + 1, state = FREE
  waits until each turn has changed

"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    ACQUIRE,
    I32,
    RELAXED,
    SEQ_CST,
    Number,
    Struct,
    Writer,
    native,
)
from graphc.codegen.runtime.channels import device_of, never, notify, wait_for
from graphc.codegen.runtime.device_threads import POSTED, crew, crew_lease
from graphc.codegen.runtime.ready_queue import agenda_reset
from graphc.codegen.runtime.system import core, give_way, pause
from graphc.codegen.runtime.team_failure import frame_of, team_fail
from graphc.codegen.runtime.tuning import tuned
from graphc.codegen.runtime.walker import walk
from graphc.runtime.call.failure import NO_WORKER
from graphc.runtime.load.layouts import ChannelWords, FrameWords, TeamWords

# ------------------------------------------------------------------------- the caller


@native(I32, is_public=True)
def run(f: Writer, frame: Struct[FrameWords]) -> None:
    """Run a frame and those of its team; 0, or the first failure."""
    team = frame.team.to(TeamWords)
    with f.when(team.is_null):
        f.give(walk(f, frame))
    if not f.module.has_threads:
        f.give(NO_WORKER)
        return
    agenda_reset(f, frame)
    team_prepare(f, team)
    with f.loop(1, team.devices) as d:
        team_post(f, team, d)
    status = walk(f, frame)
    with f.when(status != 0):
        team_fail(f, team, 0, status)
    wait_for(f, team.at("running"), 0, never(f), device_of(team, 0))
    with f.loop(1, team.devices) as d:
        team_part(f, team, d)
    with f.when(team.at("failed").load(order=ACQUIRE) == 0):
        f.give(0)
    failure = f.local(0)
    with f.forever():  # whoever failed first may not have written it down yet
        failure.set(team.at("status").load(order=ACQUIRE))
        with f.when(failure != 0):
            f.leave()
        give_way(f)
    frame.row = team.row
    f.give(failure.cast("trunc", I32))


def team_prepare(f: Writer, team: Struct[TeamWords]) -> None:
    """Make everything as it is before a run; after a failure channels may be full."""
    team.at("running").store(team.devices - 1, SEQ_CST)
    with f.loop(1, team.devices) as d:
        frame = frame_of(device_of(team, d))
        frame.at("cancel").store(0, RELAXED)
        frame.row = 0
        agenda_reset(f, frame)
    with f.when(team.at("failed").load(order=RELAXED) != 0):
        with f.loop(0, team.channel_count) as c:
            team.channels.to(ChannelWords)[c].at("state").store(0, RELAXED)
        team.at("status").store(0, RELAXED)
        team.at("failed").store(0, SEQ_CST)


@native()
def team_post(f: Writer, team: Struct[TeamWords], d: Number) -> None:
    """Have a worker run a device."""
    spot = device_of(team, d)
    number = crew_lease(f, spot.worker.most(0))
    spot.worker = number
    with f.when(number < 0):
        team.at("running").fetch_sub(1, SEQ_CST)
        team_fail(f, team, d, NO_WORKER)
        f.give()
    worker = crew(f)[number]
    spot.turn = worker.turn
    worker.core, worker.team, worker.frame, worker.device = core(f), team, spot.frame, d
    worker.at("state").store(POSTED, SEQ_CST)
    notify(f, worker)


@native()
def team_part(f: Writer, team: Struct[TeamWords], d: Number) -> None:
    """Wait until the worker of a device touches nothing of the team any more."""
    spot = device_of(team, d)
    with f.when(spot.worker < 0):
        f.give()
    turn = crew(f)[spot.worker].at("turn")
    looks = f.local(0)
    with f.forever():
        with f.when(turn.load(order=ACQUIRE) != spot.turn):
            f.leave()
        pause(f)
        looks += 1
        with f.when(looks == tuned.turn_looks):
            looks.set(0)
            give_way(f)
