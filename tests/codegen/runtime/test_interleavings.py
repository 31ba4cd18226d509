"""Native code whose threads meet, in every order that they may meet in.

Small cases of the real program, from the text that LLVM gets, and planted faults that have to be
found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from interleavings import WORD, Machine, Program, Running, explore, signed

from graphc.base.memory_layout import Layout
from graphc.codegen.llvm.writer import (
    ACQ_REL,
    I32,
    I64,
    PTR,
    RELAXED,
    RELEASE,
    Module,
    Native,
    Number,
    Pointer,
    Value,
    Writer,
    native,
)
from graphc.codegen.runtime import channels, team, thread_pool, thread_pool_waking
from graphc.codegen.runtime.device_threads import device_worker
from graphc.codegen.runtime.team_failure import team_stop
from graphc.codegen.runtime.thread_pool_work import ENTERED, IDLE, POSTED, JobWords, job, slots
from graphc.codegen.runtime.tuning import tuned
from graphc.runtime.call.failure import CANCELLED, NO_WORKER
from graphc.runtime.load.layouts import (
    AgendaWords,
    ChannelWords,
    DeviceWords,
    FrameWords,
    TeamWords,
)

LINUX = "x86_64-unknown-linux-gnu"
TEAM, CHANNEL, BUFFER, AGENDA, STATE, ROWS, ROW, ENDING, VALUES, TAKEN, KERNEL, WORK = (
    (16 + k) << 24 for k in range(12)
)
LINKS, LINKED, BELL = ((32 + k) << 24 for k in range(3))
FRAMES = 64 << 24, 65 << 24


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits asks whether it is enough each time, and hears both answers."""
    monkeypatch.setattr(tuned, "clock_pauses", 1)
    monkeypatch.setattr(tuned, "brief_spins", 1)
    monkeypatch.setattr(tuned, "turn_looks", 1)


SPINS = {"@graphc_spun_enough": (0, 1)}


def text_of(*roots: Native) -> str:
    return Module(LINUX).text(roots)


def filled(place: int, layout: type[Layout], /, **fields: int) -> dict[int, int]:
    """Memory of a layout."""
    return {place + layout.fields[name][0]: value for name, value in fields.items()}


def field(layout: type[Layout], name: str) -> int:
    return layout.fields[name][0]


def planted(text: str, old: str, new: str) -> str:
    """A text with a fault in it."""
    assert re.search(old, text), "the fault has no place any more"
    return re.sub(old, new, text)


# ------------------------------------------------------------------------------------ channels


@native()
def send_all(f: Writer, frame: Pointer, row: Pointer, values: Pointer, count: Number) -> None:
    with f.loop(0, count) as k:
        channels.send(f, frame, row, values.at(k))


@native()
def receive_all(f: Writer, frame: Pointer, row: Pointer, taken: Pointer, count: Number) -> None:
    with f.loop(0, count) as k:
        channels.receive(f, frame, row, taken.at(k))


def two_devices(**channel: int) -> dict[int, int]:
    """A team of two devices with one channel, and a row that uses it."""
    memory = filled(TEAM, TeamWords, devices=2, channels=CHANNEL, channel_count=1)
    memory |= filled(CHANNEL, ChannelWords, source=0, target=1, **channel)
    memory |= {ROW + 16: 8, ROW + 24: 0}  # bytes, channel
    for number, frame in enumerate(FRAMES):
        memory |= filled(frame, FrameWords, team=TEAM, device=number, log=0)
        device = TEAM + TeamWords.nbytes + number * DeviceWords.nbytes
        memory |= filled(device, DeviceWords, frame=frame)
    return memory


def constants(memory: Mapping[int, int]) -> list[int]:
    """What nobody writes: all that a test prepares, but what changes in a run."""
    changing = {field(ChannelWords, name) + CHANNEL for name in ("state", "address")}
    return [*set(memory) - changing, CHANNEL + field(ChannelWords, "record")]


def messages(text: str, *, buffer: int, count: int = 2, **options: bool) -> int:
    """Explore a channel on which as many messages are sent as are received."""
    memory = two_devices(buffer=buffer, address=buffer, agenda=0)
    memory |= {VALUES + 8 * k: 7 + k for k in range(count)}
    machine = Machine(Program(text), choices=SPINS, constants=constants(memory), **options)
    start = machine.start(
        memory,
        [
            ("send_all", (FRAMES[0], ROW, VALUES, count)),
            ("receive_all", (FRAMES[1], ROW, TAKEN, count)),
        ],
    )

    def check(memory: dict[int, int]) -> None:
        assert [memory.get(TAKEN + 8 * k) for k in range(count)] == [7 + k for k in range(count)]

    return explore(machine, start, check=check)


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("buffer", [0, BUFFER], ids=["pull", "push"])
def test_messages_arrive_in_order_and_nobody_sleeps_for_ever(buffer: int, buffered: bool) -> None:
    assert messages(text_of(send_all, receive_all), buffer=buffer, buffered=buffered) > 100


PARK = r"(store atomic i32 1, ptr %spot seq_cst, align 4)\n((?:.*\n){2})"


def test_a_wake_up_is_lost_where_parked_is_set_after_the_last_look() -> None:
    text = planted(text_of(send_all, receive_all), PARK, r"\2  \1\n")
    with pytest.raises(AssertionError, match="never end"):
        messages(text, buffer=0)


@pytest.mark.parametrize(
    "store", ["store atomic i32 1, ptr %spot", "store atomic i64 %state, ptr %channel"]
)
def test_a_wake_up_is_lost_where_a_store_may_be_late(store: str) -> None:
    text = planted(
        text_of(send_all, receive_all), re.escape(store) + " seq_cst", f"{store} release"
    )
    assert messages(text, buffer=0), "right where stores are seen at once"
    with pytest.raises(AssertionError, match="never end"):
        messages(text, buffer=0, buffered=True)


def test_a_message_that_is_read_without_waiting_is_a_race() -> None:
    text = planted(
        text_of(send_all, receive_all), r"load atomic i64, ptr %at seq_cst", "load i64, ptr %at"
    )
    text = text.replace("load i64, ptr %at, align 8", "load i64, ptr %at")
    with pytest.raises(AssertionError, match="race"):
        messages(text, buffer=0, races=True)


# ------------------------------------------------------------------------------------ ready queue


@native()
def follow(f: Writer, frame: Pointer, row: Pointer, size: Number, out: Pointer) -> None:
    out[0] = channels.next_segment(f, frame, row, size)


def a_segment(
    calls: list[tuple[str, tuple[int, ...]]], roots: tuple[Native, ...], **options: Any
) -> set[int]:
    """Explore a device that waits for its second segment, which a message begins; where it goes."""
    memory = two_devices(buffer=0, agenda=AGENDA, segment=1)
    memory |= filled(
        AGENDA, AgendaWords, words=1, open=STATE, counts=STATE + 8, rows=ROWS, here=0b01
    )
    memory |= filled(FRAMES[1], FrameWords, agenda=AGENDA)
    memory |= {STATE + 8: 1, STATE + 16: 1, ROWS: 0, ROWS + 8: 30, ENDING + 16: 1, VALUES: 7}
    fixed = set(constants(memory)) - {AGENDA + field(AgendaWords, "here"), STATE + 8, STATE + 16}
    found: set[int] = set()
    machine = Machine(Program(text_of(*roots)), choices=SPINS, constants=list(fixed), **options)
    start = machine.start(memory, [("follow", (FRAMES[1], ENDING, 3, TAKEN)), *calls])
    explore(machine, start, check=lambda memory: found.add(memory[TAKEN]))
    return found


@pytest.mark.parametrize("buffered", [False, True])
def test_a_device_that_waits_for_anything_hears_of_a_message(buffered: bool) -> None:
    calls = [("send_all", (FRAMES[0], ROW, VALUES, 1))]
    assert a_segment(calls, (follow, send_all), buffered=buffered) == {30}


@pytest.mark.parametrize("buffered", [False, True])
def test_a_cancelled_device_stops_even_if_it_is_about_to_park(buffered: bool) -> None:
    stopped = a_segment([("team_stop", (TEAM,))], (follow, team_stop), buffered=buffered)
    assert stopped == {CANCELLED & ((1 << 64) - 1)}


def test_a_message_and_a_cancellation_at_once() -> None:
    calls = [("send_all", (FRAMES[0], ROW, VALUES, 1)), ("team_stop", (TEAM,))]
    found = a_segment(calls, (follow, send_all, team_stop))
    assert found == {30, CANCELLED & ((1 << 64) - 1)}


def of_links(count: int, **agenda: int) -> dict[int, int]:
    """A device that waits for as many segments, each of which begins with the message of a link;
    the channels of senders come first, those of the receiver behind them."""
    memory = two_devices()
    memory |= filled(FRAMES[1], FrameWords, agenda=AGENDA)
    state = {"open": STATE, "counts": STATE + 8, "rows": ROWS, "bell": BELL, "heard": -1}
    memory |= filled(AGENDA, AgendaWords, words=1, here=1, links=LINKED, **state, **agenda)
    memory |= {AGENDA + field(AgendaWords, "link_count"): count}
    for k in range(count):
        link = LINKS + 256 * k
        memory |= filled(CHANNEL + 128 * k, ChannelWords, link=link, bell=BELL, source=0, target=1)
        memory |= filled(CHANNEL + 128 * (count + k), ChannelWords, link=link, source=0, target=1)
        memory |= {LINKED + 16 * k: CHANNEL + 128 * (count + k), LINKED + 16 * k + 8: 1 + k}
        memory |= {STATE + 16 + 8 * k: 1, ROWS + 8 * (1 + k): 30 + k, ENDING + 16 + 8 * k: 1 + k}
        memory |= {ROW + 64 * k + 16: 8, ROW + 64 * k + 24: k}
    return memory | {VALUES: 7}


def linked(count: int, *calls: tuple[str, tuple[int, ...]], **came: int) -> set[int]:
    """Where a device goes on that waits for the messages of as many links."""
    memory = of_links(count) | {int(at): value for at, value in came.items()}
    machine = Machine(
        Program(text_of(follow, send_all)),
        models={"@syscall": lambda run, *_: 0},
        choices={"@graphc_spun_enough": (0,)},
    )
    found: set[int] = set()
    start = machine.start(memory, [("follow", (FRAMES[1], ENDING, 2 + count, TAKEN)), *calls])
    explore(machine, start, check=lambda memory: found.add(memory[TAKEN]))
    return found


def test_a_device_that_waits_for_anything_hears_of_a_message_of_another_process() -> None:
    assert linked(1, ("send_all", (FRAMES[0], ROW, VALUES, 1))) == {30}


@pytest.mark.parametrize("number", range(3))
def test_the_message_that_is_there_goes_first(number: int) -> None:
    assert linked(3, ("send_all", (FRAMES[0], ROW + 64 * number, VALUES, 1))) == {30 + number}


def test_a_message_that_came_before_the_run_is_heard_of() -> None:
    assert linked(2, **{str(LINKS + 256): 8, str(BELL): 1}) == {31}


def test_a_message_that_was_taken_is_not_heard_of_again() -> None:
    old = {str(LINKS): 8, str(BELL): 1, str(CHANNEL + 256 + field(ChannelWords, "moved")): 8}
    assert linked(2, ("send_all", (FRAMES[0], ROW + 64, VALUES, 1)), **old) == {31}


# ------------------------------------------------------------------------------------ the pool


@native()
def fork_all(f: Writer, kernel: Pointer, work: Pointer, count: Number, units: Number) -> None:
    """Fork as often, each time for the next eight words of work."""
    with f.loop(0, count) as k:
        thread_pool.fork(f, kernel, f.null(), work.at(k << 3), units, 1, 2, 0, work.at(-1))


@native(PTR)
def hasty_worker(f: Writer, argument: Pointer) -> None:
    """A worker that reads what it does before it says that it does it: the job may be another one
    by then, though the slot looks the same."""
    slot = slots(f)[argument.cast("ptrtoint", I64)]
    state = slot.at("state")
    with f.forever(), f.when(state.load(order=RELAXED) == POSTED):
        early = job(f).at("parameters").load(PTR, RELAXED)
        with f.when(state.cas(POSTED, ENTERED, ACQ_REL)):
            with f.when(slot.at("next").fetch_add(1, RELAXED) == 0):
                f.invoke(I32, job(f).kernel, f.null(), early, 1, 2, 1)
            state.store(IDLE, RELEASE)


def forks(
    text: str,
    callers: int = 1,
    count: int = 2,
    memory: Mapping[str, int] | None = None,
    worker: str = "pool_worker",
    **options: Any,
) -> int:
    """Explore callers that fork a kernel of two units; each unit has to be run once."""
    program = Program(text)
    program.names[KERNEL] = "kernel"

    def kernel(run: Running, _: int, place: int, low: int, high: int, thread: int) -> None:
        for unit in range(low, high):
            assert not run.read(place + 8 * unit), "a unit is run twice"
            run.write(place + 8 * unit, 1)

    works = [WORK + 256 * c + 64 * k for c in range(callers) for k in range(count)]

    def check(found: dict[int, int]) -> None:
        assert all(found.get(w) and found.get(w + 8) for w in works), "a unit is not run"

    words = {"workers": 1, "spins": 0, **(memory or {})}
    lives = [(worker, (1,))] if worker else []
    machine = Machine(program, {"kernel": kernel}, constants=[WORK - 8, WORK + 248], **options)
    calls = [("fork_all", (KERNEL, WORK + 256 * c, count, 2)) for c in range(callers)]
    start = machine.start(
        {program.addresses[f"@graphc_{name}"]: value for name, value in words.items()},
        [*calls, *lives],
    )
    return explore(machine, start, ends=range(callers), check=check)


@pytest.mark.slow
@pytest.mark.parametrize(("patience", "buffered"), [(1, False), (0, True)])
def test_every_unit_of_every_job_is_run_once(patience: int, buffered: bool) -> None:
    """Workers that are asleep are left so, or woken."""
    text = text_of(fork_all, thread_pool.pool_worker)
    assert forks(text, memory={"patience": patience}, buffered=buffered) > 100


@pytest.mark.slow
def test_two_callers_share_a_pool() -> None:
    assert forks(text_of(fork_all, thread_pool.pool_worker), callers=2, count=1) > 100


def test_a_pool_that_is_released_twice_is_found() -> None:
    release = "store atomic i32 0, ptr @graphc_busy release, align 4"
    text = planted(text_of(fork_all, thread_pool.pool_worker), release, f"{release}\n  {release}")
    with pytest.raises(AssertionError, match=r"race|twice|not run"):
        forks(text, callers=2, worker="")  # which may be that late


def test_a_worker_that_takes_one_job_for_another_is_found() -> None:
    text = text_of(fork_all, thread_pool.pool_worker, hasty_worker)
    assert forks(text, count=1, worker="hasty_worker") > 10, "one job has no other"
    with pytest.raises(AssertionError, match="twice"):
        forks(text, worker="hasty_worker")


@native()
def judge_step(f: Writer, begin: Number, own_end: Number, end: Number) -> None:
    """Judge a step of two threads by when it began, the caller had done its share, and all had."""
    job(f).units = end  # what the clock says
    thread_pool_waking.judge(f, begin, own_end, Value(f, I64, "2"))


def rests(steps: list[tuple[float, float]]) -> list[float]:
    """For how long workers are sent away after each step. In milliseconds, as are the steps: the
    caller's share, and how long it waited for the others."""
    program = Program(text_of(judge_step))
    clock = program.addresses["@graphc_job"] + field(JobWords, "units")
    holiday = program.addresses["@graphc_holiday"]
    machine = Machine(program, {"@graphc_now": lambda run: run.read(clock)})
    found: list[float] = []
    now, memory = 0, dict[int, int]()
    for own, wait in steps:
        times = now, now + round(own * 1e6), now + round((own + wait) * 1e6)
        before = memory.get(holiday, 0)
        seen: list[dict[int, int]] = []
        explore(machine, machine.start(memory, [("judge_step", times)]), check=seen.append)
        (memory,) = seen
        is_sent = memory.get(holiday, 0) != before
        found.append((memory[holiday] - times[-1]) / 1e6 if is_sent else 0)
        now = memory[holiday] if is_sent else times[-1]
    return found


def test_workers_that_save_more_than_they_cost_are_not_sent_away() -> None:
    late_at_times = [*[(1, 0)] * 20, (1, 15), *[(1, 0)] * 20, (0.1, 10)]
    assert not any(rests(late_at_times * 3))


def test_workers_that_cost_more_than_they_save_are_sent_away_for_longer_each_time() -> None:
    shortest, longest = tuned.shortest_rest / 1e6, tuned.longest_rest / 1e6
    found = rests([(1, 10)] * 9)
    assert found == [min(shortest * 2**k, longest) for k in range(9)]
    of_use_again = rests([*[(1, 10)] * 3, *[(1, 0.1)] * 30, *[(1, 10)] * 4])
    assert [rest for rest in of_use_again if rest] == [
        *(shortest * 2**k for k in range(3)),
        *(shortest * 2**k for k in range(2)),
    ]


# ------------------------------------------------------------------------------------ teams


@native()
def run_all(f: Writer, frame: Pointer, count: Number, out: Pointer) -> None:
    """Run a frame of a team as often; then its memory is used for something else."""
    with f.loop(0, count) as k:
        out[k] = team.run(f, frame).cast("sext", I64)
    team_memory = frame.at(FrameWords.team).load(PTR)
    team_memory.to(TeamWords).running = 99
    (team_memory + TeamWords.nbytes).to(DeviceWords).at("parked").store(f.half(7))


def runs(
    teams: int, count: int, statuses: tuple[int, ...], spins: Any = SPINS, **options: Any
) -> set[tuple[int, ...]]:
    """Explore runs of teams of two devices that share one worker; the statuses they ended with."""
    program = Program(text_of(run_all, device_worker))
    crew = program.addresses["@graphc_crew"]
    memory, fixed, calls = {program.addresses["@graphc_crew_size"]: 1}, list[int](), []
    for number in range(teams):
        shift = number << 20
        words = {place + shift: value for place, value in two_devices().items()}
        words[TEAM + shift + field(TeamWords, "channels")] = CHANNEL + shift
        for frame in FRAMES:
            words[frame + shift + field(FrameWords, "team")] = TEAM + shift
        for k, frame in enumerate(FRAMES):
            device = TEAM + shift + TeamWords.nbytes + k * DeviceWords.nbytes
            words[device + field(DeviceWords, "frame")] = frame + shift
        memory |= words
        fixed += [*words, *(frame + shift + field(FrameWords, "agenda") for frame in FRAMES)]
        calls.append(("run_all", (FRAMES[0] + shift, count, TAKEN + shift)))
    models = {"@graphc_crew_spread": lambda run, *_: 0, "@graphc_crew_start": lambda run: -1 & WORD}
    machine = Machine(program, models, {**spins, "@graphc_walk": statuses}, fixed, **options)
    start = machine.start(memory, [*calls, ("device_worker", (crew,))])
    found = set()

    def check(memory: dict[int, int]) -> None:
        assert all(memory.get(TEAM + (t << 20) + 8) == 99 for t in range(teams)), (
            "used after its end"
        )
        places = [TAKEN + (t << 20) + 8 * k for t in range(teams) for k in range(count)]
        found.add(tuple(signed(memory.get(place, 0), 64) for place in places))

    explore(machine, start, ends=range(teams), check=check)
    return found


@pytest.mark.parametrize("buffered", [False, True])
def test_a_worker_leaves_a_team_alone_once_the_run_is_over(buffered: bool) -> None:
    # A run that comes before the worker is free again would start another.
    assert runs(1, 2, (0,), buffered=buffered) == {(0, 0), (0, NO_WORKER)}


def test_no_two_threads_of_a_team_race() -> None:
    assert runs(1, 1, (0,), races=True) == {(0,)}


def test_the_first_failure_of_a_team_is_its_status() -> None:
    assert runs(1, 1, (0, 5)) == {(0,), (5,)}


@pytest.mark.slow
def test_a_worker_serves_one_team_at_a_time() -> None:
    awake = {"@graphc_spun_enough": (0,)}
    assert runs(2, 1, (0,), awake) == {(0, 0), (0, NO_WORKER), (NO_WORKER, 0)}
