"""Random programs on several devices, as people write them, differentiated: is one ever refused or
wrong, or does one wait forever?

    python -m benchmarks.placed --count 2000

Blocks of `gc.device` stand anywhere, values are used across devices, branches and loops nest, and
gradients go through all of it.  Results have the bits of one device (both with `fast_math=False`),
every stage that partition and schedule write has those of the reference, and no message arrives
before it was sent, simulated or traced.

A program is drawn before it is traced, as a body may be traced more than once.  A block is a list
of statements; each reads values that exist and adds one:

    with gc.device("cpu:1"):
        v.append(np.sin(v[2]))
    v.append(gc.fori(0, 3, lambda k, x: np.tanh(v[1] @ x), v[0]))
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import graphc as gc
from graphc.ir.channels import ends, spanning
from graphc.ir.graph import Graph, Program
from graphc.ops.reference.interpreter import interpret
from graphc.passes.placement.cost import CostModel
from graphc.passes.placement.simulate import Costs, simulate
from graphc.runtime.observe.trace import numbered, trace

SIZE, DEPTH = 3, 3
SEARCH = 0.02  # seconds of search for a better placement: any will do here
PATIENCE = 300.0  # seconds for one program before it counts as one that waits forever
Array = Any
Step = Callable[[list[Array]], Array]  # a statement: from the values there are to a new one


@dataclass
class Drawn:
    """A random program: `function(*arguments)` gives a number, `wrt` are the arguments that it is
    differentiated with respect to."""

    devices: list[str]
    opt: int
    function: Callable[..., Array]
    arguments: list[np.ndarray]
    wrt: tuple[int, ...]

    def compiled(self, **options: Any) -> Any:
        """Its value and gradients, in the order that is written."""
        both = gc.value_and_grad(self.function, wrt=self.wrt)
        return gc.compile(both, opt=self.opt, threads=1, fast_math=False, **options)


def drawn(seed: int, depth: int = DEPTH) -> Drawn:
    """The program of a seed, on 2 to 4 devices."""
    draw = random.Random(seed)
    devices = [f"cpu:{k}" for k in range(draw.randint(2, 4))]
    count = draw.randint(1, 3)
    body = Writer(draw, devices).block(draw.randint(2, 5), depth)

    def function(*arguments: Array) -> Array:
        return total(body([*arguments]))

    values = np.random.default_rng(seed)
    arguments = [values.standard_normal((SIZE, SIZE)) for _ in range(count)]
    wrt = tuple(sorted(draw.sample(range(count), draw.randint(1, count))))
    return Drawn(devices, draw.choice((0, 2, 2)), function, arguments, wrt)


def total(value: Array) -> Array:
    return np.tanh(value).sum()


UNARY: Sequence[Callable[[Array], Array]] = (
    np.tanh,
    np.sin,
    lambda x: np.exp(-x * x),
    lambda x: x - x.mean(axis=0, keepdims=True),
    lambda x: x.T * 0.9,
    lambda x: np.maximum(x, 0.1 * x),
    lambda x: np.where(x > 0.05, x, x * x),
)
BINARY: Sequence[Callable[[Array, Array], Array]] = (
    lambda x, y: x + 0.5 * y,
    lambda x, y: x * np.tanh(y),
    lambda x, y: 0.3 * (x @ y),
    lambda x, y: x - y.sum() * 0.1,
    lambda x, y: np.maximum(x, y),
    lambda x, y: x + y[0] * 0.2,
)


@dataclass
class Writer:
    """Draws statements; `around` is the device of the block that is being written."""

    draw: random.Random
    devices: list[str]
    around: list[str | None] = field(default_factory=lambda: [None])

    def block(self, length: int, depth: int) -> Step:
        steps = [self.statement(depth) for _ in range(length)]
        last = self.pick()

        def run(values: list[Array]) -> Array:
            inner = [*values]
            for step in steps:
                inner.append(step(inner))
            return last(inner) + 0.5 * inner[-1]

        return run

    def statement(self, depth: int) -> Step:
        kinds: list[Callable[[int], Step]] = [self.plain] * 4
        if depth:
            kinds += [self.branch, self.repeat, self.count, self.walk] * 2 + [self.again]
        place = self.draw.choice([None, None, *self.devices])
        step = self.draw.choice(kinds)(depth - 1)
        if place is None:
            return step

        def placed(values: list[Array]) -> Array:
            with gc.device(place):
                return step(values)

        return placed

    def pick(self) -> Step:
        """One of the values, rather a late one."""
        at = 1 - self.draw.random() ** 1.5
        return lambda values: values[min(int(at * len(values)), len(values) - 1)]

    def plain(self, depth: int) -> Step:
        one, two = self.pick(), self.pick()
        if self.draw.random() < 0.5:
            unary = self.draw.choice(UNARY)
            return lambda values: unary(one(values))
        binary = self.draw.choice(BINARY)
        return lambda values: binary(one(values), two(values))

    def inner(self, depth: int) -> Step:
        return self.block(self.draw.randint(1, 3), depth)

    def branch(self, depth: int) -> Step:
        """Values of around are operands, or what the branches close over."""
        yes, no, subject, operand = self.inner(depth), self.inner(depth), self.pick(), self.pick()
        edge, given = self.draw.choice((-0.34, 0.07, 0.61)), self.draw.random() < 0.5

        def run(values: list[Array]) -> Array:
            flag = subject(values).sum() > edge
            if given:
                taken = operand(values)
                return gc.cond(flag, lambda x: yes([x]), lambda x: no([x, x * 0.5]), taken)
            return gc.cond(flag, lambda: yes(values), lambda: no(values))

        return run

    def repeat(self, depth: int) -> Step:
        """A while loop that a counter ends, or a value."""
        body, start, edge = self.inner(depth), self.pick(), self.draw.choice((0.4, 1.3, 1e9))
        trips, test_at = self.draw.randint(0, 3), self.draw.choice([None, None, *self.devices])

        def run(values: list[Array]) -> Array:
            def test(state: Any) -> Array:
                with gc.device(test_at):
                    return (state[0] < trips) & (np.abs(state[1]).max() < edge)

            def step(state: Any) -> Any:
                return state[0] + 1, np.tanh(body([*values, state[1]]))

            return gc.while_loop(test, step, (0, start(values)))[1]

        return run

    def count(self, depth: int) -> Step:
        body, start, trips = self.inner(depth), self.pick(), self.draw.randint(0, 3)

        def run(values: list[Array]) -> Array:
            def step(k: Array, x: Array) -> Array:
                return np.tanh(body([*values, x])) + 0.01 * k

            return gc.fori(0, trips, step, start(values))

        return run

    def walk(self, depth: int) -> Step:
        """A scan over the rows of a value; its y may be on another device than its carry."""
        body, start, rows = self.inner(depth), self.pick(), self.pick()
        own, place = self.draw.random() < 0.5, self.draw.choice([None, *self.devices])

        def run(values: list[Array]) -> Array:
            def step(carry: Array, row: Array) -> Any:
                made = np.tanh(body([*([] if own else values), carry, carry + row]))
                with gc.device(place):
                    return made, (made * row).sum(axis=0)

            last, ys = gc.scan(step, start(values), rows(values))
            return last + 0.3 * ys

        return run

    def again(self, depth: int) -> Step:
        """What the gradient computes a second time."""
        body, start = self.inner(depth), self.pick()
        return lambda values: gc.checkpoint(lambda x: body([x]))(start(values))


# -------------------------------------------------------------------------------- what must hold


def check(program: Drawn) -> None:
    """Raises GraphError for a program that is refused and AssertionError for one that is wrong."""
    alone = program.compiled(soft_placement=True)(*program.arguments)
    many = program.compiled(devices=program.devices, place_seconds=SEARCH)
    equal(flat(many(*program.arguments)), flat(alone))
    stages = {name: value for name, value, *_ in many.stages(*program.arguments)}
    arrays = program.arguments
    wanted = interpret(stages["place"], arrays)
    for name in ("partition", "schedule"):
        equal(interpret(stages[name], arrays), wanted)
    if isinstance(stages["schedule"], Program):
        graphs = stages["schedule"].graphs
        in_order(stages["schedule"], CostModel([g.device for g in graphs if g.device]))
        traced_in_order(many.executable(*arrays), arrays)


def flat(result: Any) -> list[Array]:
    value, gradients = result
    return [value, *(gradients if isinstance(gradients, tuple) else (gradients,))]


def equal(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), (one, other)


def in_order(program: Program, cost: Costs) -> None:
    """No recv ends before its send, in a simulation of the program and of its regions."""
    for ordered in (False, True):
        timeline = simulate(program, cost, in_order=ordered)
        sends, recvs = ends(program.graphs, deep=False)
        for channel, send in sends.items():
            assert timeline.end[send] <= timeline.end[recvs[channel]]
    for part in regions(program):
        in_order(part, cost)


def regions(program: Program) -> Iterator[Program]:
    """The regions of ops that span devices, as programs."""
    home = {node: graph.device for graph in program.graphs for node in graph.nodes}
    for parts in {id(found): found for found in spanning(program.graphs).values()}.values():
        for number, region in enumerate(parts[0].regions):
            graphs: list[Graph] = [p.regions[number].replace(device=home[p]) for p in parts]
            yield Program(region.name, tuple(graphs))


def traced_in_order(executable: Any, arrays: Sequence[np.ndarray]) -> None:
    """No message of a real run arrives before it was sent."""
    _, found = trace(executable, arrays)
    events = {(e.kind, e.name, k): e for e, k in numbered(found.events)}
    for (kind, name, number), sent in events.items():
        if kind == "send":
            taken = events["transfer", name, number]
            assert 0 <= sent.start <= sent.end <= taken.start <= taken.end


# -------------------------------------------------------------------------------- many of them


def verdict(seed: int) -> str:
    """In one line."""
    try:
        check(drawn(seed))
    except gc.GraphError as error:
        return f"refused: {' '.join(str(error).split())}"
    except AssertionError as error:
        return f"wrong: {' '.join(str(error).split())}"
    return "holds"


def worker(first: int, last: int) -> None:
    faulthandler.register(signal.SIGUSR1)
    for seed in range(first, last):
        print(f"{seed} {verdict(seed)[:400]}", flush=True)


def verdicts(first: int, last: int, patience: float) -> Iterator[tuple[int, str]]:
    """Of every seed. A process that says nothing for so long is stuck: the next one goes on."""
    while first < last:
        command = [sys.executable, "-m", "benchmarks.placed", "--worker"]
        command += ["--first", str(first), "--count", str(last - first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            stuck = True
            while select.select([child.stdout], [], [], patience)[0]:
                seed, _, text = child.stdout.readline().strip().partition(" ")
                if not seed:
                    stuck = False
                    break
                yield int(seed), text
                first = int(seed) + 1
            if first < last:
                if stuck:
                    os.kill(child.pid, signal.SIGUSR1)  # where it is
                    child.kill()
                yield first, "waits forever" if stuck else f"crashed: status {child.wait()}"
                first += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds for one program")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    last = options.first + options.count
    if options.worker:
        worker(options.first, last)
        return
    counts: Counter[str] = Counter()
    for seed, text in verdicts(options.first, last, options.patience):
        counts[text.partition(":")[0]] += 1
        if counts.total() % 100 == 0:
            print(f"{counts.total()} programs, {counts['holds']} hold", file=sys.stderr, flush=True)
        if text != "holds":
            print(seed, text, flush=True)
    print(*(f"{count} {what}" for what, count in counts.most_common()), sep=", ")
    raise SystemExit(counts["holds"] != options.count)


if __name__ == "__main__":
    main()
