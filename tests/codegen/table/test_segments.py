"""Devices run what is ready first: segments, their counts, messages that come in another order."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import effort
import numpy as np
import pytest
from control_graphs import control_graphs
from device_graphs import CPUS, at_random, config, parted, simplified, spread, traced
from effort import examples
from graphs import random_graphs
from hypothesis import given
from hypothesis import strategies as st
from runtime_kernels import image as one_image

import graphc as gc
from graphc.base.record import replace
from graphc.codegen.build import build
from graphc.codegen.table.check_order import check_order
from graphc.codegen.table.segments import Segment, segments
from graphc.errors import GraphError, RunError, VerifyError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import arena_intervals, peak_bytes, roots
from graphc.passes import pipeline
from graphc.passes.tuning import tuned
from graphc.runtime.call.frame import Part
from graphc.runtime.devices.multi_device import MultiDeviceExecutable
from graphc.runtime.devices.ready_segments import Agenda, agenda_of
from graphc.runtime.files import gcx_files, gcx_writer
from graphc.runtime.load.program import Image
from graphc.runtime.load.table import END, JUMP, TableBuilder, rows
from graphc.runtime.observe.trace import Event, trace

SLOW = examples(13)
X = np.random.default_rng(0).standard_normal((48, 48)).astype("f4") / 8
ONCE, LONG, FOR_EVER = (np.array(n, "i4") for n in (1, 30_000, 2**31 - 1))


def late_and_early(x: Any, rounds: Any, index: Any) -> Any:
    """Two values for cpu:0, which needs one for each of its results; the first takes longer."""
    with gc.device("cpu:1"):
        done = (np.int32(0), x)
        a = gc.while_loop(lambda s: s[0] < rounds, lambda s: (s[0] + 1, np.tanh(s[1] @ x)), done)
        a = a[1][index]
    with gc.device("cpu:0"):
        first = np.tanh(a @ x)
    with gc.device("cpu:2"):
        b = np.exp(x)
    with gc.device("cpu:0"):
        return first, np.tanh(b @ x)


def choose(node: Node) -> Any:
    """Where the constraint of a node says, or else on cpu:0."""
    spec = getattr(node.place, "spec", None)
    return CPUS[spec.index if spec is not None else 0]


def as_written(
    function: Callable[..., Any], *arguments: Any, devices: int = 3
) -> MultiDeviceExecutable:
    """Compiled in the order of the function: no scheduler knows what comes late."""
    placed = spread(traced(function, *arguments), choose)
    found = compiled(parted(placed, devices), devices)
    assert isinstance(found, MultiDeviceExecutable)
    return found


def planned(program: Program, devices: int, **options: Any) -> Program:
    asked = config(devices, threads=1, **options)
    value = pipeline.run(program, asked, after="schedule")[-1].value
    assert isinstance(value, Program)
    return value


def compiled(program: Program, devices: int, **options: Any) -> Any:
    asked = config(devices, threads=1, **options)
    return build(planned(program, devices, **options), asked)[0]


INDEX = np.arange(48)
TIGHT = 1 << 40  # a limit, however large, has memory used again as soon as possible


def two_messages() -> MultiDeviceExecutable:
    return as_written(late_and_early, X, ONCE, INDEX)


# ------------------------------------------------------------------------------------ what is ready


def early_first(events: list[Event]) -> bool:
    """Whether device 0 took the early message, ran its kernel and then waited for the late one."""
    moved = [e for e in events if e.kind == "transfer"]
    late, early = (next(e for e in moved if e.peer == peer) for peer in (1, 2))
    kernels = [e for e in events if e.kind == "kernel"]
    assert late.row < early.row < kernels[0].row and kernels[1].row < early.row
    waits = [e for e in events if e.kind == "wait" and e.peer == 1]
    told = early.end <= kernels[0].start < kernels[0].end < late.start <= kernels[1].start
    return told and any(kernels[0].end <= wait.start and wait.end <= late.start for wait in waits)


def test_a_late_message_holds_only_what_needs_it() -> None:
    found = two_messages()
    alone = gc.compile(late_and_early, devices=["cpu:0"], soft_placement=True)
    for rounds in (LONG, LONG, 4 * LONG, 16 * LONG, 16 * LONG, 64 * LONG):
        results, seen = trace(found, [X, rounds, INDEX])
        for got, want in zip(results, alone(X, rounds, INDEX), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        if early_first([event for event in seen.events if event.device == 0]):
            break  # a busy machine may hold up what is early, too
    else:
        raise AssertionError("the late message held what does not need it, each time")


def test_what_there_is_no_choice_about_is_one_segment() -> None:
    def chain(x: Any) -> Any:
        with gc.device("cpu:1"):
            y = np.tanh(x @ x)
        with gc.device("cpu:0"):
            return y @ x

    def answers(x: Any) -> Any:
        for device in ("cpu:1", "cpu:0") * 5:
            with gc.device(device):
                x = np.tanh(x @ x)
        return x

    for function in (chain, answers):
        found = as_written(function, X, devices=2)
        assert all(agenda_of(image.table.tolist()) is None for image in found.image.images)


def cancel_until(found: MultiDeviceExecutable, ended: threading.Event) -> None:
    """Again and again: a run that has not begun yet is not stopped."""
    while not ended.wait(0.05):
        found.cancel()


def test_a_failure_and_a_cancel_reach_a_device_that_waits_for_any_message() -> None:
    found = two_messages()
    wanted = found.run([X, ONCE, INDEX])
    for _ in range(5):
        with pytest.raises(RunError, match=r"out of range \(on cpu:1\)"):
            found.run([X, LONG, INDEX + 1])
        ended = threading.Event()
        stopper = threading.Thread(target=cancel_until, args=(found, ended))
        stopper.start()
        with pytest.raises(RunError, match="cancelled"):
            found.run([X, FOR_EVER, INDEX])
        ended.set()
        stopper.join()
        for got, want in zip(found.run([X, ONCE, INDEX]), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def crossed(x: Any, rounds: Any) -> Any:
    """On cpu:0 the loop needs nothing but x, but on cpu:1 what cpu:0 makes of a late message."""
    with gc.device("cpu:2"):
        done = (np.int32(0), x)
        late = gc.while_loop(lambda s: s[0] < rounds, lambda s: (s[0] + 1, np.tanh(s[1] @ x)), done)
    with gc.device("cpu:0"):
        y = np.tanh(late[1] @ x)

    def body(k: Any, value: Any) -> Any:
        with gc.device("cpu:1"):
            value = np.tanh(value) + y
        with gc.device("cpu:0"):
            return value * 0.5

    return gc.fori(0, 5, body, x), late[1]  # kept, so that the loop has memory of its own


def test_an_op_that_spans_devices_comes_after_what_stands_before_it() -> None:
    found = as_written(crossed, X, ONCE)
    for rounds in (ONCE, LONG):
        stopper = threading.Timer(600, found.cancel)  # one that hangs
        stopper.start()
        found.run([X, rounds])
        stopper.cancel()


def overwritten(x: Any, rounds: Any) -> Any:
    """The second result may lie where x lies, which the first one needs until a message comes."""
    with gc.device("cpu:1"):
        done = (np.int32(0), x)
        late = gc.while_loop(lambda s: s[0] < rounds, lambda s: (s[0] + 1, np.tanh(s[1] @ x)), done)
    with gc.device("cpu:2"):
        y = np.exp(x)
    with gc.device("cpu:0"):
        return x - late[1], x * 2 + y


def test_what_overwrites_an_argument_comes_after_those_that_read_it() -> None:
    program = parted(spread(traced(overwritten, X, LONG), choose), 3)
    wanted = compiled(program, 3).run([X, LONG])
    found = compiled(program, 3, donate=("x",))
    assert max(found.image.donated) == 0
    for got, want in zip(found.run([X.copy(), LONG]), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_concurrent_runs_are_ready_for_themselves() -> None:
    found = two_messages()
    rounds = [np.array(k % 7, "i4") for k in range(40)]
    wanted = [found.run([X, k, INDEX]) for k in rounds]
    with ThreadPoolExecutor(4) as threads:
        for got, want in zip(threads.map(lambda k: found.run([X, k, INDEX]), rounds), wanted):
            assert [g.tobytes() for g in got] == [w.tobytes() for w in want]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_an_agenda_of_its_own() -> None:
    found = two_messages()
    wanted = [result.tobytes() for result in found.run([X, ONCE, INDEX])]
    child = os.fork()
    if child == 0:
        got = [result.tobytes() for result in found.run([X, ONCE, INDEX])]
        os._exit(0 if got == wanted else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [result.tobytes() for result in found.run([X, ONCE, INDEX])] == wanted


def test_memory_is_kept_from_few_messages() -> None:
    def many(x: Any) -> Any:
        total = x[0]
        for k in range(60):
            with gc.device("cpu:1"):
                y = np.tanh(x + k)
            with gc.device("cpu:0"):
                total = np.tanh(y @ x)[0] + total * 0.5
        return total

    program = parted(spread(traced(many, X), choose), 2)
    free, tight = (
        peak_bytes(planned(program, 2, memory_limit=limit).graphs[0]) / X.nbytes
        for limit in (None, TIGHT)
    )
    assert (
        tight < 5 and tuned.late_messages < free < 6 * tuned.late_messages
    )  # 150 if none was used again


# ------------------------------------------------------------------------------------ any order


def permuted(part: Part, draw: random.Random) -> None:
    """Have a device take segments in another order, where several are ready."""
    words = part.image.table.copy()
    agenda = part.agenda
    if agenda is None:
        return
    inner = list(range(1, len(agenda.rows) - 1))
    draw.shuffle(inner)
    rank = np.array([0, *inner, len(inner) + 1])
    for row in rows(words.tolist()):
        if words[row] == END:
            released = slice(row + 2, row + words[row + 1])
            words[released] = rank[words[released]]
    back = np.argsort(rank)
    counts = np.array(agenda.counts)[back].tolist()
    messages = {channel: int(rank[k]) for channel, k in agenda.messages.items()}
    part.agenda = Agenda(np.array(agenda.rows)[back].tolist(), counts, messages)
    part.image = replace(part.image, table=words)


def model(x: Any, w: Any) -> Any:
    """Many values, small enough that the memory of most is used again."""
    a, b, c = np.tanh(x @ w), np.exp(x), x + w
    for k in range(12):
        a, b, c = np.sin(b) @ w, a - np.tanh(c @ x), np.cos(a) @ x + k
        c = gc.fori(0, 2, lambda i, s: np.tanh(s), c) if k % 5 == 0 else c
    return a, b @ c, c


@pytest.mark.slow
def test_any_order_of_what_is_ready_gives_the_same_bits() -> None:
    orders = set()
    draw = random.Random(0)
    for seed in range(6):
        limit = TIGHT if seed % 2 else None
        program = parted(at_random(traced(model, X, X), seed, 3), 3)
        program = planned(program, 3, memory_limit=limit)
        image = build(program, config(3, threads=1))[0].image
        wanted = [result.tobytes() for result in MultiDeviceExecutable(image).run([X, X])]
        for _ in range(effort.rounds(12)):
            found = MultiDeviceExecutable(image)
            for part in found.parts:
                permuted(part, draw)
            results, seen = trace(found, [X, X])
            assert [result.tobytes() for result in results] == wanted
            orders.add((seed, *((e.device, e.row) for e in seen.events if e.kind != "wait")))
    assert len(orders) > 4 * effort.rounds(12)


def users(graph: Graph, node: Node, begin: int, nbytes: int) -> list[Node]:
    """A node, and those that read these bytes of its memory."""

    def lies_there(value: Node) -> bool:
        regions = (r for r in value.place.regions if r.base == "arena")
        return node in roots(value) and any(
            r.offset < begin + nbytes and begin < r.offset + r.nbytes for r in regions
        )

    return [node, *(n for n in graph.nodes if any(map(lies_there, n.inputs)))]


def ordered(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Pairs of nodes of which one reads or comes after the other, or uses its memory again."""
    yield from ((source, n) for n in graph.nodes for source in (*n.inputs, *n.after))
    intervals = arena_intervals(graph)
    for _, last, offset, nbytes, first in intervals:
        for begin, _, start, size, second in intervals:
            if last < begin and offset < start + size and start < offset + nbytes:
                before = users(graph, first, offset, nbytes)
                yield from product(before, users(graph, second, start, size))


def pieces_of(graph: Graph) -> list[Segment]:
    groups = {"p": graph.params, "r": graph.results}
    names = ["arena", *(f"{name}{k}" for name, group in groups.items() for k in range(len(group)))]
    return segments(graph, {name: number for number, name in enumerate(names)})


Pairs = Collection[tuple[Node, Node]]


def out_of_order(pairs: Pairs, pieces: list[Segment]) -> bool:
    """May segments run in another order than that of these pairs of nodes?"""
    home = {node: number for number, piece in enumerate(pieces) for node in piece.nodes}
    later = [{number} for number in range(len(pieces))]
    for number, piece in reversed(list(enumerate(pieces))):
        later[number].update(*(later[other] for other in piece.releases))
    assert later[0] == set(range(len(pieces)))
    assert all(len(pieces) - 1 in found for found in later)
    found = ((home[a], home[b]) for a, b in pairs if a in home and b in home)
    return any(second not in later[first] for first, second in found)


def faults(pieces: list[Segment]) -> Iterator[tuple[str, list[Segment]]]:
    """The segments with one wait less, one node elsewhere, or two nodes in the other order.

    What a segment does not wait for any more, it waits for nothing of but the beginning, and the
    end waits for it.
    """
    end = len(pieces) - 1
    for k, piece in enumerate(pieces):
        for other in piece.releases:
            made = list(pieces)
            made[k] = Segment(piece.nodes, [r for r in piece.releases if r != other] or [end])
            if not any(other in p.releases for p in made):
                first = made[0]
                made[0] = Segment(first.nodes, sorted({*first.releases, other}))
            yield "wait", made
        if k and piece.nodes:
            made = list(pieces)
            made[k - 1] = Segment([*made[k - 1].nodes, piece.nodes[0]], made[k - 1].releases)
            made[k] = Segment(piece.nodes[1:], piece.releases)
            yield "node", made
        if len(piece.nodes) > 1:
            made = list(pieces)
            made[k] = Segment([piece.nodes[1], piece.nodes[0], *piece.nodes[2:]], piece.releases)
            yield "swap", made
            made = list(pieces)
            made[k] = Segment(piece.nodes[1:], piece.releases)
            yield "lost", made


@SLOW
@given(
    g=random_graphs(most=40) | control_graphs(),
    seed=st.integers(0, 1000),
    limit=st.sampled_from([None, TIGHT]),
)
def test_memory_is_touched_in_order(g: Graph, seed: int, limit: int | None) -> None:
    program = parted(at_random(simplified(g), seed, 3), 3)
    for graph in planned(program, 3, memory_limit=limit).graphs:
        assert not out_of_order(set(ordered(graph)), pieces_of(graph))
        check_order(graph, (), pieces_of(graph))


def is_accepted(graph: Graph, pieces: list[Segment]) -> bool:
    try:
        check_order(graph, (), pieces)
    except VerifyError:
        return False
    return True


@pytest.mark.slow
def test_segments_in_an_order_that_may_be_wrong_are_refused() -> None:
    found: Counter[tuple[str, bool]] = Counter()
    draw = random.Random(0)
    for seed in range(2):
        limit = TIGHT if seed % 2 else None
        program = parted(at_random(traced(model, X, X), seed, 3), 3)
        for graph in planned(program, 3, memory_limit=limit).graphs:
            pairs = set(ordered(graph))
            for kind, pieces in draw.sample([*faults(pieces_of(graph))], 30):
                accepted = is_accepted(graph, pieces)
                found[kind, accepted] += 1
                assert not accepted or kind in ("wait", "node")
                assert not (accepted and out_of_order(pairs, pieces))
    assert min(found[kind, False] for kind in ("wait", "node", "swap", "lost")) > 10, found


# ------------------------------------------------------------------------------------ bad tables


def releasing(image: Image, number: int, released: list[int]) -> Image:
    """The image with other segments behind the end of one; its table has no jumps."""
    words = image.table.tolist()
    row = [row for row in rows(words) if words[row] == END][number]
    made = [*words[:row], END, 2 + len(released), *released, *words[row + words[row + 1] :]]
    return replace(image, table=np.array(made, np.int64))


@pytest.mark.parametrize("released", [[1, 3], [0, 3], [99], [-1], [3, 3], []])
def test_segments_that_would_never_run_are_refused(released: list[int]) -> None:
    image = two_messages().image
    releasing(image, 1, [2, 3]).check()
    with pytest.raises(GraphError, match="segment 1"):
        releasing(image, 1, released).check()
    with pytest.raises(GraphError, match="segment 2 of 4 leads from or to nothing"):
        releasing(image, 0, [1, 3]).check()


def test_jumps_between_segments_are_refused() -> None:
    image = two_messages().image
    words = image.others[0].table.copy()
    jump = next(row for row in rows(words.tolist()) if words[row] == JUMP)
    words[jump + 2] = 0
    with pytest.raises(GraphError, match="jump to word 0, in another segment"):
        replace(image, others=(replace(image.others[0], table=words), image.others[1])).check()


def test_segments_need_a_message() -> None:
    table = TableBuilder()
    table.end(1)
    table.end()
    with pytest.raises(GraphError, match="2 segments, but waits for no message"):
        one_image(table, [], []).check()


def test_a_file_keeps_the_segments(tmp_path: Any) -> None:
    found = two_messages()
    gcx_writer.save(found.image, tmp_path / "two.gcx")
    loaded = gcx_files.load(tmp_path / "two.gcx")
    for got, want in zip(loaded.run([X, ONCE, INDEX]), found.run([X, ONCE, INDEX]), strict=True):
        np.testing.assert_array_equal(got, want)
    mine, theirs = (agenda_of(e.image.table.tolist()) for e in (found, loaded))
    assert mine is not None and mine == theirs
