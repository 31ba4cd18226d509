"""Partition: messages between devices, loops and branches taken apart, and the proof that nobody
waits forever."""

from __future__ import annotations

import random

import numpy as np
import pytest
from device_graphs import (
    CPUS,
    at_random,
    checked,
    config,
    count,
    everything,
    parted,
    same,
    shuffled,
    spread,
    traced,
)
from device_programs import branch, loop
from effort import examples, rounds
from graphs import arguments, random_graphs
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.errors import GraphError, VerifyError
from graphc.ir.channels import channels_paired, no_deadlock
from graphc.ir.graph import Graph, Program
from graphc.ir.parse import parse
from graphc.ir.rewrites import counting
from graphc.ir.text import show
from graphc.ops.reference.interpreter import interpret
from graphc.passes.devices.partition import partition
from graphc.passes.normalise.cse import cse

ON = ("@/job:localhost/device:cpu:0", "@/job:localhost/device:cpu:1")
X = np.linspace(-2, 2, 4, dtype=np.float32)
Y = np.linspace(1, 3, 4, dtype=np.float32)


def placed(*lines: str, result: str, params: str = "%0 x: f32[4]") -> Graph:
    """A graph from lines that end in the number of their device."""
    body = "\n".join(f"  {line[:-1].rstrip()} {ON[int(line[-1])]}" for line in lines)
    made = parse(f"graph @g({params}) {{\n{body}\n  return {result}\n}}\n")
    assert isinstance(made, Graph)
    return made


# ----------------------------------------------------------------------------------------- messages


def test_two_readers_on_one_device_share_a_message() -> None:
    """Figure 4 of the TensorFlow white paper, case 1: x on one device, b and c on the other."""
    graph = placed(
        "%1 = tanh(%0) : f32[4] 0",
        "%2 = neg(%1) : f32[4] 1",
        "%3 = exp(%1) : f32[4] 1",
        "%4 = add(%2, %3) : f32[4] 1",
        "%5 = sin(%4) : f32[4] 0",
        result="%5",
    )
    program = parted(graph)
    first, second = program.graphs
    assert [n.op.name for n in first.nodes] == ["tanh", "send", "recv", "sin"]
    assert [n.op.name for n in second.nodes] == ["recv", "neg", "exp", "add", "send"]
    assert [n.id for n in second.nodes[1:4]] == [2, 3, 4]
    same(graph, program, [X])


@examples(20)
@given(random_graphs(), st.integers(0, 10**6), st.integers(2, 4))
def test_one_pair_for_each_value_and_destination(graph: Graph, seed: int, devices: int) -> None:
    given = at_random(graph, seed, devices)
    program = parted(given, devices)
    home = {n: n.place for n in given.nodes} | dict.fromkeys(given.params, CPUS[0])
    crossings = {
        (source, node.place)
        for node in given.nodes
        for source in node.inputs
        if not source.op.traits.stored and home[source] != node.place
    }
    crossings |= {
        (r, CPUS[0]) for r in given.results if not r.op.traits.stored and home[r] != CPUS[0]
    }
    assert count(program, "send") == count(program, "recv") == len(crossings)
    same(graph, program, arguments(graph, seed))


def test_a_skip_connection_goes_straight_from_producer_to_consumer() -> None:
    chain = [CPUS[0], CPUS[1], CPUS[2], CPUS[3], CPUS[3]]
    graph = traced(lambda x: np.exp(np.tanh(np.sin(np.cos(x)))) * x, X)
    program = parted(spread(graph, lambda n: chain[graph_position(graph, n)]), 4)
    routes = [(n.place.index, n.attrs["to"][-1]) for n in nodes_of(program, "send")]
    # x to the last device does not pass through the others
    assert sorted(routes) == [(0, "1"), (0, "3"), (1, "2"), (2, "3"), (3, "0")]
    same(graph, program, [X])


def graph_position(graph: Graph, node: object) -> int:
    return graph.nodes.index(node) if node in graph.nodes else 0  # type: ignore[arg-type]


def nodes_of(program: Program, op: str) -> list:
    return [n for g in program.graphs for n in everything(g) if n.op.name == op]


def test_a_control_edge_is_a_message_without_a_value() -> None:
    graph = placed(
        "%1 = tanh(%0) : f32[4] 0",
        "%2 = const() {value=f32[](2.0)} : f32[] 1",
        '%3 = assign(%2) {name="v", container="main"} : f32[] 1',
        result="%1",
    )
    assign = graph.nodes[2]
    graph.nodes[2] = assign.replace(after=(graph.nodes[0],))
    program = parted(graph)
    (send,), (recv,) = nodes_of(program, "send"), nodes_of(program, "recv")
    assert send.inputs == () and [n.id for n in send.after] == [1]
    assert str(recv.type) == "()" and nodes_of(program, "assign")[0].after == (recv,)
    state: dict = {}
    interpret(program, [X], state=state)
    assert state["main", "v"] == 2


def test_a_control_edge_beside_a_value_is_that_message() -> None:
    graph = placed(
        "%1 = tanh(%0) : f32[4] 0",
        "%2 = neg(%1) : f32[4] 1",
        '%3 = assign(%2) {name="v", container="main"} : f32[4] 1',
        result="%1",
    )
    graph.nodes[2] = graph.nodes[2].replace(after=(graph.nodes[0],))
    program = parted(graph)
    assert count(program, "send") == 1


def test_constants_do_not_travel_and_idle_devices_are_left_out() -> None:
    graph = traced(lambda x: np.tanh(x) * np.float32(3) + np.float32(3), X)
    program = parted(spread(graph, lambda n: CPUS[1 if n.op.name == "const" else 0]), 3)
    assert len(program.graphs) == 1
    assert count(program, "send") == 0


def test_variables_stay_on_their_device(home) -> None:
    v = gc.Variable(np.ones(4, np.float32), name="v")

    def step(x):
        v.assign(v.value * 0.5 + np.tanh(x))
        return v.value.sum()

    graph = traced(step, X)
    state_ops = ("read", "assign")
    program = parted(spread(graph, lambda n: CPUS[n.op.name in state_ops]))
    held = [n.op.name for n in program.graphs[1].nodes]
    assert "read" in held and "assign" in held
    start = {(home.name, "v"): np.ones(4, np.float32)}
    same(graph, program, [X], state=start)
    with counting() as moves:
        partition(spread(graph, lambda n: CPUS[n.op.name in state_ops]), config())
    assert len(moves.nodes) == 1
    with counting(0):
        assert len(parted(spread(graph, lambda n: CPUS[n.op.name in state_ops])).graphs) == 1
    with pytest.raises(GraphError, match=r"variable 'v' is used on .*cpu:0 and on .*cpu:1"):
        partition(spread(graph, lambda n: CPUS[n.op.name == "assign"]), config())


def test_a_node_on_a_foreign_device() -> None:
    graph = traced(np.tanh, X)
    with pytest.raises(GraphError, match=r"is on .*cpu:3, but the program runs on cpu:0, cpu:1"):
        partition(spread(graph, lambda n: CPUS[3]), config())


def test_names_stay_with_their_nodes() -> None:
    def f(x):
        a = gc.name(np.tanh(x), "a")
        return gc.name(np.exp(a), "b")

    program = parted(spread(traced(f, X), lambda n: CPUS[n.op.name == "exp"]))
    first, second = program.graphs
    assert set(first.names) == {"a"} and set(second.names) == {"b"}


@examples(13)
@given(random_graphs(), st.integers(0, 10**6))
def test_cse_never_joins_nodes_on_different_devices(graph: Graph, seed: int) -> None:
    """G3: after placement equal nodes merge on one device only; nothing grows, twice is once.

    Constants that have devices are on every other one, too.
    """
    given = at_random(graph, seed, 3)
    merged = cse(given, config(3))
    assert len(merged) <= len(given)
    assert cse(merged, config(3)) is merged
    before, after = (
        {(not n.op.traits.stored and n.place, n.op, n.attrs, n.type) for n in g.nodes}
        for g in (given, merged)
    )
    assert after == before
    program = parted(given, 3)
    once = program.map(lambda g: cse(g, config(3)))
    checked(once)
    assert len(once) <= len(program)
    assert once.map(lambda g: cse(g, config(3))) is once
    same(given, once, arguments(graph, seed))


def test_equal_nodes_on_two_devices_stay_two() -> None:
    graph = placed(
        "%1 = tanh(%0) : f32[4] 0",
        "%2 = tanh(%0) : f32[4] 1",
        "%3 = tanh(%0) : f32[4] 1",
        "%4 = mul(%2, %3) : f32[4] 1",
        "%5 = add(%1, %4) : f32[4] 0",
        result="%5",
    )
    assert [n.id for n in cse(graph, config()).nodes] == [1, 2, 4, 5]


# ---------------------------------------------------------------------------------- loops, branches


def scanned(x, y):
    def step(carry, row):
        made = np.tanh(carry * row)
        return made, (made + row, carry)

    carry, (p, q) = gc.scan(step, y, np.stack([x, y, x * y]))
    return carry, p.sum(0) + q


def nested(x, y):
    def body(s):
        i, a, b = s
        _, a = gc.while_loop(lambda s: s[0] < i, lambda s: (s[0] + 1, np.tanh(s[1] + y)), (0, a))
        b = gc.cond(b.sum() > a.sum(), lambda a, b: a - b, lambda a, b: a * b, a, b)
        return i + 1, a, b

    return gc.while_loop(lambda s: s[0] < 4, body, (0, x, y))[1:]


def swapped(x, y):
    return gc.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[2], s[1]), (0, x, y))[1:]


def gradient_of(function):
    def gradients(x, y):
        return gc.value_and_grad(lambda *v: sum(np.sum(np.sin(r)) for r in function(*v)), (0, 1))(
            x, y
        )

    return gradients


CONTROL = (loop, branch, scanned, nested, swapped)


@pytest.mark.parametrize("function", CONTROL, ids=lambda f: f.__name__)
def test_control_flow_over_devices_at_random(function) -> None:
    graph = traced(function, X, Y)
    for seed in range(15):
        program = parted(at_random(graph, seed, 2 + seed % 3), 2 + seed % 3)
        same(graph, program, [X, Y])


@pytest.mark.parametrize("function", [loop, branch, scanned], ids=lambda f: f.__name__)
def test_gradients_pass_through(function) -> None:
    graph = traced(gradient_of(function), X, Y)
    for seed in range(8):
        program = parted(at_random(graph, seed, 2 + seed % 2), 2 + seed % 2)
        assert count(program, "send") > 5
        same(graph, program, [X, Y])


def test_a_gradient_over_two_devices_runs_natively() -> None:
    def f(x, y, apart=True):
        def body(s):
            i, a, b = s
            with gc.device("cpu:0" if apart else "cpu"):
                a = np.tanh(a * x + b)
            with gc.device("cpu:1" if apart else "cpu"):
                b = np.sin(b) + a * 0.5
            return i + 1, a, b

        _, a, b = gc.while_loop(lambda s: s[0] < 30, body, (0, x, y))
        return np.sum(a * b)

    one = gc.compile(gc.value_and_grad(lambda x, y: f(x, y, apart=False), (0, 1)))
    two = gc.compile(gc.value_and_grad(f, (0, 1)), devices=["cpu:0", "cpu:1"])
    stages = {name: value for name, value, _, _ in two.stages(X, Y)}
    loops = [[n for n in g.nodes if n.op.name == "while"] for g in stages["partition"].graphs]
    assert len(loops[0]) >= 1 and len(loops[1]) >= 1
    want, got = one(X, Y), two(X, Y)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [*CONTROL, gradient_of(loop), gradient_of(scanned)],
    ids=[*(f.__name__ for f in CONTROL), "gradient", "gradient of a scan"],
)
def test_any_number_of_moves_computes_the_same(function) -> None:
    graph = traced(function, X, Y)
    for seed in range(3):
        given = at_random(graph, seed, 2 + seed % 2)
        with counting() as moves:
            assert show(parted(given, 3)) == show(partition(given, config(3)))
        with counting(0):
            assert len(parted(given, 3).graphs) == 1
        for limit in range(1, len(moves.nodes), 1 + len(moves.nodes) // 4):
            with counting(limit):
                same(graph, parted(given, 3), [X, Y])


def two_devices(graph: Graph) -> Graph:
    return spread(graph, lambda n: CPUS[n.op.name in ("tanh", "exp", "mul")])


def test_a_loop_over_two_devices_for_a_hundred_trips() -> None:
    graph = traced(lambda x, y: loop(x, y, trips=100), X, Y)
    program = parted(two_devices(graph))
    first, second = (next(n for n in g.nodes if n.op.name == "while") for g in program.graphs)
    told = [n for n in first.regions[0].nodes if n.op.name == "send"]
    assert [n.inputs[0] for n in told] == [first.regions[0].results[0]]
    assert second.regions[0].results[0].op.name == "recv"
    sent: dict = {}
    interpret(program, [X, Y], sent=sent)
    assert len(sent[told[0].attrs["channel"]]) == 101
    same(graph, program, [X, Y])


def test_nested_loops_over_two_devices() -> None:
    graph = traced(nested, X, Y)
    program = parted(two_devices(graph))
    outer = [next(n for n in g.nodes if n.op.name == "while") for g in program.graphs]
    inner = [[n.op.name for n in w.regions[1].nodes if n.regions] for w in outer]
    assert "while" in inner[0] and "while" in inner[1]
    same(graph, program, [X, Y])


def test_a_loop_on_one_device_gets_nothing_extra() -> None:
    graph = traced(lambda x, y: np.sin(loop(x, y)[0]), X, Y)
    program = parted(spread(graph, lambda n: CPUS[n.op.name != "sin"]))
    before = next(n for n in graph.nodes if n.op.name == "while")
    after = next(n for n in program.graphs[1].nodes if n.op.name == "while")
    for old, new in zip(before.regions, after.regions, strict=True):
        assert [n.op.name for n in old.nodes] == [n.op.name for n in new.nodes]
    assert count(program, "send") == 3  # x and y there, the result back
    same(graph, program, [X, Y])


CONSTANT = """graph @g(%0 x: f32[4] @cpu:0, %1 p: bool[] @cpu:0) {
  %2 = cond(%1, %0) : f32[4] {
    graph @f(%0 x: f32[4]) {
      %1 = tanh(%0) : f32[4] @cpu:1
      return %1
    }
    graph @f(%0 x: f32[4]) {
      %1 = scan(%0) {carries=1, scanned=0, length=2, reverse=false} : f32[4] {
        graph @body(%0 x: f32[4]) {
          %1 = const() {value=f32[4](1.0,2.0,3.0,4.0)} : f32[4] @cpu:0
          return %1
        }
      }
      %2 = exp(%1) : f32[4] @cpu:2
      return %2
    }
  }
  return %2
}
"""


def test_what_a_region_computes_nowhere_is_where_the_region_is() -> None:
    graph = parse(CONSTANT.replace("@cpu", "@/job:localhost/device:cpu"))
    assert isinstance(graph, Graph)
    program = parted(graph, 3)
    for flag in (True, False):
        same(graph, program, [X, np.array(flag)])


def test_what_does_not_change_crosses_once_before_the_loop() -> None:
    def f(x, y):
        return gc.fori(0, 50, lambda i, s: np.tanh(s) * y, x)

    graph = traced(f, X, Y)
    program = parted(spread(graph, lambda n: CPUS[n.op.name == "mul"]))
    sent: dict = {}
    interpret(program, [X, Y], sent=sent)
    assert sorted(len(m) for m in sent.values())[:2] == [1, 1]
    same(graph, program, [X, Y])


@pytest.mark.parametrize("far", ["stack", "push", "pop"])
def test_a_stack_stays_where_it_is_made(far: str) -> None:
    graph = traced(gradient_of(loop), X, Y)
    program = parted(spread(graph, lambda n: CPUS[n.op.name == far]))
    home = program.graphs[far == "stack"]
    assert {"stack", "push", "pop"} <= {n.op.name for n in everything(home)}
    same(graph, program, [X, Y])


EITHER = """gir 1
graph @either(%0 flag: bool[] @cpu:0, %1 x: f32[4] @cpu:0) {
  %2 = stack() {type=f32[4]} : stack<f32[4]> @cpu:0
  %3 = stack() {type=f32[4]} : stack<f32[4]> @cpu:1
  %4 = cond(%0, %2, %3) : stack<f32[4]> @cpu:0 {
    graph @yes(%0 a: stack<f32[4]> @cpu:0, %1 b: stack<f32[4]> @cpu:1) {
      return %0
    }
    graph @no(%0 a: stack<f32[4]> @cpu:0, %1 b: stack<f32[4]> @cpu:1) {
      return %1
    }
  }
  %5 = push(%4, %1) : stack<f32[4]> @cpu:0
  return %1
}
"""


def test_a_stack_that_would_have_to_move() -> None:
    graph = parse(EITHER.replace("@cpu", "@/job:localhost/device:cpu"))
    assert isinstance(graph, Graph)
    with pytest.raises(GraphError, match=r"the stack .* cannot move from .*cpu:1 to .*cpu:0"):
        partition(graph, config())


# ---------------------------------------------------------------------------- orders and time


def test_legal_orders_give_the_same_bits() -> None:
    graph = traced(lambda x, y: (*branch(*loop(x, y)), *scanned(x, y)), X, Y)
    program = parted(at_random(graph, 3, 3), 3)
    want = interpret(program, [X, Y])
    draw = random.Random(0)
    texts = set()
    count = rounds(150)
    for trial in range(count):
        other = shuffled(program, draw)
        texts.add(tuple(n.id for g in other.graphs for n in g.nodes))
        if trial % 50 == 0:
            checked(other)
        for a, b in zip(want, interpret(other, [X, Y]), strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(texts) > 0.8 * count


# ---------------------------------------------------------------------------------- the verifier

TWO = """program @p {{
  graph @p(%0 x: f32[4]) on {0} {{
{a}
    return %0
  }}
  graph @p() on {1} {{
{b}
    return
  }}
}}
"""


def program_of(a: str, b: str) -> Program:
    texts = []
    for text in (a, b):
        lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
        texts.append("\n".join(f"    {line}" for line in lines))
    made = parse(TWO.format(ON[0], ON[1], a=texts[0], b=texts[1]))
    assert isinstance(made, Program)
    return made


def recv(id: int, channel: str, kind: str = "f32[4]") -> str:
    return f'%{id} = recv() {{channel="{channel}", from="d", type={kind}}} : {kind}'


def send(id: int, value: str, channel: str) -> str:
    return f'%{id} = send({value}) {{channel="{channel}", to="d"}} : ()'


CYCLE = program_of(
    "\n".join((recv(1, "c1"), send(2, "%0", "c0"))), "\n".join((recv(1, "c0"), send(2, "%1", "c1")))
)


def test_a_cycle_of_waits() -> None:
    channels_paired(CYCLE)
    with pytest.raises(VerifyError, match="deadlock: every device waits for another"):
        no_deadlock(CYCLE)
    with pytest.raises(GraphError, match="deadlock"):
        interpret(CYCLE, [X])


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (send(1, "%0", "c0"), "", "channel c0 has no partner"),
        ("", recv(1, "c0"), "channel c0 has no partner"),
        (
            "\n".join((send(1, "%0", "c0"), send(2, "%0", "c0"))),
            recv(1, "c0"),
            "channel c0 has two sends",
        ),
        (send(1, "%0", "c0"), recv(1, "c0", "f32[5]"), r"carries f32\[4\] but is read as f32\[5\]"),
        (send(1, "", "c0"), recv(1, "c0"), r"carries \(\) but is read as f32"),
    ],
)
def test_channels_without_their_partner(a: str, b: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        channels_paired(program_of(a, b))


def while_text(id: int, value: str, test: str, body: str) -> str:
    return f"""%{id} = while({value}) {{carries=1}} : f32[4] {{
        graph @test(%0 a: f32[4]) {{
          {test}
        }}
        graph @body(%0 a: f32[4]) {{
          {body}
          return %0
        }}
      }}"""


DECIDES = "%1 = sum(%0) {axes=[0], keepdims=false} : f32[]\n%2 = lt(%1, %1) : bool[]"


def test_parts_that_may_not_run_equally_often() -> None:
    a = while_text(1, "%0", f"{DECIDES}\nreturn %2", send(1, "%0", "c0"))
    b = "%0 = const() {value=f32[4](0.0,0.0,0.0,0.0)} : f32[4]\n" + while_text(
        1, "%0", f"{DECIDES}\nreturn %2", recv(1, "c0")
    )
    program = program_of(a, b)
    channels_paired(program)
    with pytest.raises(VerifyError, match="may not run equally often"):
        no_deadlock(program)


def test_a_send_in_a_loop_to_a_recv_outside() -> None:
    a = while_text(1, "%0", f"{DECIDES}\nreturn %2", send(1, "%0", "c0"))
    program = program_of(a, recv(0, "c0"))
    channels_paired(program)
    with pytest.raises(VerifyError, match="do not run equally often"):
        no_deadlock(program)


def test_a_deadlock_inside_a_loop() -> None:
    told = f"{DECIDES}\n{send(3, '%2', 'p')}\nreturn %2"
    a = while_text(1, "%0", told, "\n".join((recv(1, "c1"), send(2, "%0", "c0"))))
    b = "%0 = const() {value=f32[4](0.0,0.0,0.0,0.0)} : f32[4]\n" + while_text(
        1,
        "%0",
        f"{recv(1, 'p', 'bool[]')}\nreturn %1",
        "\n".join((recv(1, "c0"), send(2, "%0", "c1"))),
    )
    program = program_of(a, b)
    channels_paired(program)
    with pytest.raises(VerifyError, match="deadlock"):
        no_deadlock(program)
