"""Why a compilation is as it is: questions, each answered from the reasons that passes noted.

What passes do not note is asked again of the analysis that decided (`passes.fusion.why_apart`), and
how fast a kernel could be of loops that do nothing else (`roofline`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.codegen.table.donation import donations, is_named
from graphc.config import Config
from graphc.errors import GraphError, plain
from graphc.frontend.diagnosis.roofline import Limits, Load, Times, load_of, verdict
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import largest_live, last_reads, peak_bytes
from graphc.ir.op import OPS
from graphc.ir.place import device_of
from graphc.ir.regions import scheduled_graphs
from graphc.ir.size_answers import by_example, in_numbers
from graphc.ir.sizes import Size, hint_of
from graphc.ir.types import Type
from graphc.ir.verify import graphs_of, with_blocks
from graphc.passes.devices.compress import U16
from graphc.passes.fusion.why_apart import Apart, apart
from graphc.passes.placement.cost import rounds_of
from graphc.passes.placement.measured import cost_model
from graphc.passes.reasons import duration
from graphc.runtime.observe.profile import profile

if TYPE_CHECKING:
    from graphc.frontend.compile.build import Built
    from graphc.frontend.compile.variant import Compile
    from graphc.passes.pipeline import StageResult

MOST = 8  # lines of evidence for one answer


@record(frozen=True)
class Answer:
    """A question, its answer in one sentence, and lines of evidence."""

    question: str
    answer: str
    evidence: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(
            (f"{self.question}\n  {self.answer}", *(f"    {e}" for e in self.evidence))
        )


class Why:
    """The answers about a compilation: `str(why)` has those about the whole of it, `why.of(node)`
    those about a node, which is named by its name, as %12, or by a line of the user's file, as :9.
    """

    def __init__(
        self,
        stages: Sequence[StageResult],
        config: Config,
        times: Times | None = None,
        compiles: Sequence[Compile] = (),
    ) -> None:
        self.stages, self.config, self.compiles = stages, config, compiles
        self.program = stages[-1].value
        self.times = times
        self.limits = Limits(config)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.answers()))

    def answers(self) -> list[Answer]:
        """What there is to say about the whole compilation."""
        with by_example():  # sizes that are open: for the arrays at hand
            made = [self.slow(), self.memory(), self.kernels()]
            if len(graphs_of(self.program)) > 1:
                made += [self.devices(), self.messages()]
            if self.compiles:
                made.append(self.again())
            return made

    def of(self, name: str) -> list[Answer]:
        """What there is to say about a node. Raises GraphError for one that is not there."""
        with by_example():
            story = _Story(self, _named(self.stages[0].value, name))
            made = [story.became(), *story.apart(), *story.device(), *story.messages()]
            return [*made, *story.memory(), *story.slow()]

    # -- the whole

    def slow(self) -> Answer:
        loads = sorted(self.loads(), key=lambda load: -load.seconds)
        total = sum(load.seconds for load in loads)
        how = "measured" if self.times is not None else "expected by the cost model, not measured"
        how += self.sizes()
        if not loads or not total:
            return Answer("Why does it take so long?", "There is nothing to compute.")
        first = loads[0]
        share = f"{100 * first.seconds / total:.0f} % of {duration(total)}"
        answer = f"{share} ({how}) is in {_told(first.node)}: {self.verdict(first)}"
        more = (f"{duration(x.seconds)}  {_told(x.node)}: {self.verdict(x)}" for x in loads[1:4])
        return Answer("Why does it take so long?", answer, tuple(more))

    def memory(self) -> Answer:
        question = "Where does the memory peak come from?"
        graph = max(graphs_of(self.program), key=lambda g: hint_of(peak_bytes(g)))
        peak = hint_of(peak_bytes(graph))
        if not peak:
            return Answer(question, "No value needs memory but arguments, results and constants.")
        live = _largest_live(graph)
        last = last_reads(graph)
        lines = [f"{nbytes:,} bytes: {_told(n)}, {_until(graph, last, n)}" for nbytes, n in live]
        where = f" on {graph.device.short}" if len(graphs_of(self.program)) > 1 else ""
        top = f"{_told(live[0][1])} has {live[0][0]:,} of them"
        return Answer(question, f"{peak:,} bytes{where} at once; {top}", tuple(lines))

    def kernels(self) -> Answer:
        question = "Why are there so many kernels?"
        count = sum(n.op.traits.kernel for graph in with_blocks(self.program) for n in graph.nodes)
        found: Counter[str] = Counter()
        example: dict[str, str] = {}
        for groups, graph in self.fusions():
            for node in graph.nodes:
                for source in groups.operands(node):
                    if text := groups.between(source, node):
                        found[text] += 1
                        example.setdefault(text, f"{_told(source)} -> {_told(node)}")
        lines = [f"{n} x {text}: {example[text]}" for text, n in found.most_common(MOST)]
        answer = f"{count} kernels; {sum(found.values())} values lie in memory between two of them"
        return Answer(
            question,
            answer if lines else f"{count} kernels, and none reads another's",
            tuple(lines),
        )

    def devices(self) -> Answer:
        counts = (f"{len(g)} nodes on {g.device.short}" for g in graphs_of(self.program))
        reasons = [f"%{id} {text}" for id, text in self.reasons("place")]
        spans = [line for line in reasons if "makespan" in line]
        others = [line for line in reasons if "makespan" not in line][: MOST - 1]
        return Answer("Why is it on these devices?", ", ".join(counts), (*spans, *others))

    def messages(self) -> Answer:
        lines = [self.message(text)[0] for _, text in self.reasons("partition")]
        held = self.note("schedule")
        answer = f"{len(lines)} values cross between devices" + (f"; {held}" if held else "")
        return Answer("Why are there messages?", answer, tuple(lines[:MOST]))

    def message(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Who reads what was sent, and what was decided about its channel, which ends the text."""
        channel = text.rpartition(" ")[2]
        for graph in graphs_of(self.before("fuse")):
            recv = next((n for n in graph.nodes if _receives(n, channel)), None)
            if recv is not None:
                reader = _reader(graph, recv)
                why = f"{text}: {_told(reader)} reads it there" if reader is not None else text
                held = [t for id, t in self.reasons("schedule") if id == recv.id]
                short = [t for _, t in self.reasons("compress") if t.startswith(f"{channel} ")]
                return why, (*held, *short)
        return text, ()

    def again(self) -> Answer:
        lines = tuple(map(str, self.compiles))[-MOST:]
        times = len(self.compiles)
        last = self.compiles[-1].reason
        answer = (
            f"compiled {times} times, the last time for: {last}" if times > 1 else f"once: {last}"
        )
        return Answer("Why was it compiled again?", answer, lines if times > 1 else ())

    # -- what is known

    def sizes(self) -> str:
        """The sizes that answers are for, where the compilation is for others, too."""
        params = [p for graph in graphs_of(self.program) for p in graph.params]
        kinds = (p.type for p in params if isinstance(p.type, Type))
        open_ones = (extent for kind in kinds for extent in kind.shape if isinstance(extent, Size))
        hints = {n: s.scope.symbols[n].hint for s in open_ones for n in s.symbols()}
        return ", with " + ", ".join(f"{n} = {hints[n]}" for n in sorted(hints)) if hints else ""

    def reasons(self, *names: str) -> list[tuple[int, str]]:
        """What stages of these names noted."""
        return [r for stage in self.stages if stage.name in names for r in stage.note.reasons]

    def note(self, name: str) -> str:
        """What a stage says of itself."""
        notes = (str(stage.note) for stage in self.stages if stage.name == name)
        return next((note.partition("; ")[2] for note in notes), "")

    def fusions(self) -> Iterator[tuple[Apart, Graph]]:
        """Each graph that kernels are made of, with its groups."""
        for graph in graphs_of(self.before("fuse")):
            config = self.config.for_device(graph.device)
            for part in scheduled_graphs(graph):
                yield apart(part, config), part

    def before(self, name: str) -> Graph | Program:
        """What a stage was given."""
        names = [stage.name for stage in self.stages]
        return self.stages[max(names.index(name) - 1, 0) if name in names else -1].value

    def loads(self) -> list[Load]:
        """The kernels, and how long each takes in one run."""
        found = []
        costs = cost_model([graph.device for graph in graphs_of(self.program)], self.config)
        pending = [(whole, whole, 1) for whole in graphs_of(self.program)]
        while pending:
            whole, graph, calls = pending.pop()
            for node in graph.nodes:
                if node.op.traits.kernel:
                    found.append(load_of(node, whole, costs, self.times, calls))
                    continue
                inside = calls * rounds_of(node) if node.regions else 0
                pending += [(whole, region, inside) for region in node.regions]
        return found

    def verdict(self, load: Load) -> str:
        return verdict(load, self.limits if self.times is not None else None)


class _Story:
    """What became of some nodes: their ids from stage to stage."""

    def __init__(self, why: Why, nodes: list[Node]) -> None:
        self.why = why
        self.lines: list[str] = []
        self.ids = {n.id for n in nodes}
        self.places = {n.loc for n in nodes if n.loc is not None}
        self.first, self.alone = nodes[0], len(nodes) == 1
        known = {n.id for n in _all(why.stages[0].value)}
        for stage in why.stages[1:]:
            self.follow(stage, known)
            known |= {n.id for n in _all(stage.value)}
        self.at_fuse = self.members(why.before("fuse"))

    def follow(self, stage: StageResult, known: set[int]) -> None:
        """Note what a stage did to them; what it made at their lines stands for them now."""
        told = False
        for id, text in stage.note.reasons:
            if id in self.ids:
                told = True
                name = "" if text.startswith(f"%{id} ") else f"%{id} "
                self.lines.append(f"{stage.name}: {name}{text}")
                if (same := re.match(r"same as %(\d+)", text)) is not None:
                    self.ids.add(int(same[1]))
        if told:
            made = (n for n in _all(stage.value) if n.id not in known and n.loc in self.places)
            self.ids.update(n.id for n in made)

    def members(self, value: Graph | Program) -> list[Node]:
        """Those of a stage that stand for them, in regions, too: there by their lines."""
        found = [n for g in graphs_of(value) for n in g.nodes if n.id in self.ids]
        if found:
            return found
        parts = (part for graph in graphs_of(value) for part in scheduled_graphs(graph))
        return [n for part in parts for n in part.nodes if n.loc in self.places]

    # -- answers

    def became(self) -> Answer:
        kernels = self.kernels()
        dropped = [line for line in self.lines if " has no reader" in line]
        if kernels:
            answer = f"it is computed in {' and in '.join(map(_told, kernels[:MOST]))}"
        elif self.at_fuse:
            answer = f"it is {_told(self.at_fuse[-1])}, which takes no kernel"
        else:
            answer = dropped[-1] if dropped else "it takes no code of its own"
        return Answer(f"What became of {_told(self.first)}?", answer, tuple(self.lines[:MOST]))

    def kernels(self) -> list[Node]:
        """The kernels that compute them; that of the node itself, if it has one, alone."""
        reasons = self.why.reasons("fuse")
        kernels = [n for g in with_blocks(self.why.program) for n in g.nodes if n.op.traits.kernel]
        for ids in ({self.first.id} if self.alone else set(), {n.id for n in self.at_fuse}):
            named = {id for id, text in reasons if ids & _ids(text)}
            found = [n for n in kernels if n.id in named | ids]
            near = [n for n in found if n.loc in self.places]
            if found:
                return near or found
        return []

    def apart(self) -> Iterator[Answer]:
        for groups, graph in self.why.fusions():
            for node in graph.nodes:
                for source in groups.operands(node):
                    mine = node in self.at_fuse or source in self.at_fuse
                    if mine and (text := groups.between(source, node)):
                        question = f"Why is {_told(node)} not in one kernel with {_told(source)}?"
                        yield Answer(question, text)

    def device(self) -> Iterator[Answer]:
        placed = self.members(self.why.program)
        devices = {device_of(n.place) for n in placed} - {None}
        if len(graphs_of(self.why.program)) < 2 or not devices:
            return
        names = ", ".join(sorted(device.short for device in devices if device is not None))
        groups = (_ids(text) for _, text in self.why.reasons("propose_groups"))
        unit = self.ids.union(*(ids for ids in groups if not ids.isdisjoint(self.ids)))
        reasons = [text for id, text in self.why.reasons("constrain", "place") if id in unit]
        beside = "it runs with what it is computed from, or where it is read"
        yield Answer(
            f"Why is it on {names}?", reasons[0] if reasons else beside, tuple(reasons[1:])
        )

    def messages(self) -> Iterator[Answer]:
        for id, text in self.why.reasons("partition"):
            if id in self.ids:
                yield Answer(f"Why is there a recv of %{id}?", *self.why.message(text))

    def memory(self) -> Iterator[Answer]:
        kernels = self.kernels()
        reasons = [text for id, text in self.why.reasons("plan") if id in {n.id for n in kernels}]
        if reasons:
            yield Answer("Why is an array copied?", reasons[0], tuple(reasons[1:]))
        for graph in graphs_of(self.why.program):
            for nbytes, node in _largest_live(graph):
                if node in kernels:
                    until = _until(graph, last_reads(graph), node)
                    yield Answer(
                        "Why does it count at the memory peak?", f"{nbytes:,} bytes, {until}"
                    )
        if self.first.op.traits.parameter:
            yield self.donated()

    def donated(self) -> Answer:
        """Whether a result lies in the memory of an argument."""
        question = "Why is its memory not that of a result?"
        name, graph = self.first.attrs["name"], graphs_of(self.why.program)[0]
        taken = donations(graph, self.why.config.donate)
        number = next(k for k, p in enumerate(graph.params) if p.attrs["name"] == name)
        if number in taken:
            result = graph.results[taken.index(number)]
            return Answer(question, f"it is: {_told(result)} lies there")
        if not is_named(name, self.why.config.donate):
            return Answer(question, f"it was not given away: donate={plain(name)!r} does that")
        return Answer(question, "no result of its type is computed after it is read last")

    def slow(self) -> Iterator[Answer]:
        kernels = self.kernels()
        for load in self.why.loads():
            if load.node in kernels[:MOST]:
                answer = f"{duration(load.seconds)}: {self.why.verdict(load)}"
                yield Answer(f"Why does the kernel %{load.node.id} take so long?", answer)


# ------------------------------------------------------------------------------------ words


def _all(value: Graph | Program) -> Iterator[Node]:
    for graph in graphs_of(value):
        yield from graph.params
        yield from graph.nodes


def _reader(graph: Graph, value: Node) -> Node | None:
    """The first node that reads a value; the widening of a short message is none."""
    reader = next((n for n in graph.nodes if value in n.inputs), None)
    short = isinstance(value.type, Type) and value.type.dtype is U16
    return _reader(graph, reader) if reader is not None and short else reader


def _receives(node: Node, channel: str) -> bool:
    return node.op.traits.recv and node.attrs["channel"] == channel


def _ids(text: str) -> set[int]:
    return {int(id) for id in re.findall(r"%(\d+)", text)}


def _told(node: Node) -> str:
    """A node as answers name it, with its line."""
    where = f" ({plain(node.loc[0])}:{node.loc[1]})" if node.loc is not None else ""
    if node.op.traits.parameter:
        return f"argument {plain(repr(node.attrs['name']))}"
    with in_numbers():
        return f"{plain(node.summary())}{where}"


def _largest_live(graph: Graph) -> list[tuple[int, Node]]:
    """The values that take most memory while most is taken."""
    if not hint_of(peak_bytes(graph)):
        return []
    return [(hint_of(nbytes), node) for nbytes, node in largest_live(graph, MOST)]


def _until(graph: Graph, last: Mapping[Node, int], node: Node) -> str:
    """How long a value waits, and for whom."""
    end = last.get(node, len(graph.nodes))
    if end >= len(graph.nodes):
        return "kept to the end"
    return f"read last by {_told(graph.nodes[end])}"


def _named(value: Graph | Program, name: str) -> list[Node]:
    """The nodes that a user means. Raises GraphError."""
    found = list(_nodes_of(value, name.strip()))
    if not found:
        names = sorted(name for graph in graphs_of(value) for name in graph.names)
        known = f"names are {', '.join(names[:12])}; " if names else ""
        raise GraphError(
            f"there is no node {plain(name)!r}",
            hint=f"{known}%12 is a node of graphc show, :9 a line, matmul an op",
        )
    return found


def _nodes_of(value: Graph | Program, name: str) -> Iterable[Node]:
    line = re.fullmatch(r"(.*):(\d+)", name)
    for graph in graphs_of(value):
        parts = list(scheduled_graphs(graph))
        inside = [n for part in parts for n in part.nodes]
        if name in graph.names:
            return [n for n in _all(graph) if n.id == graph.names[name]]
        if re.fullmatch(r"%\d+", name):
            return [n for n in _all(value) if n.id == int(name[1:])]
        if name in graph.result_names and not name.isdigit():
            return [graph.results[graph.result_names.index(name)]]
        if params := [p for p in graph.params if p.attrs["name"] == name]:
            return params
        if line is not None:
            at = [n for n in inside if n.loc and n.loc[1] == int(line[2])]
            return [n for n in at if n.loc is not None and n.loc[0].endswith(line[1])]
        if found := [n for n in inside if n.op is OPS.get(name)]:
            return found
    return []


# ------------------------------------------------------------------------------------ asking


@refusing
def why(model: Any, *args: Any, runs: int = 0, **kwargs: Any) -> Why:
    """Why a compiled function, or what `gc.load` returns, is compiled as it is for some arguments.

    print(gc.why(f, x, w)) answers for the whole of it: where time and memory go, why there are so
    many kernels, devices, messages and compilations; `.of("h")`, `.of("%12")` and `.of(":9")` are
    about one node or line.  With `runs` the kernels are measured in so many runs, each of which
    counts (variables change), beside loops that only copy or multiply.  Raises what a call raises.
    """
    if not hasattr(model, "prepared"):
        raise GraphError(
            f"why takes a compiled function or a loaded graph, got {type(model).__name__}",
            hint="gc.compile(function) makes one",
        )
    if runs:
        built, arrays = model.prepared(args, kwargs)
        times = measured(built, arrays, runs)
        return Why(built.stages, model.config, times, getattr(model, "compiles", ()))
    if hasattr(model, "why"):
        found: Why = model.why(*args, **kwargs)
        return found
    return Why(model.prepared(args, kwargs)[0].stages, model.config)


def measured(built: Built, arrays: Sequence[Any], runs: int) -> Times:
    """The seconds and the calls of each kernel in a run, by device and node: medians of runs."""
    found: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for _ in range(runs):
        times: dict[tuple[str, str], tuple[float, int]] = {}
        for row in profile(built.executable, list(arrays)):
            if row.origin is not None and row.kernel not in ("wait", "transfer"):
                key = row.device, row.origin.node
                seconds, calls = times.get(key, (0.0, 0))
                times[key] = seconds + row.seconds, calls + row.count
        for key, time in times.items():
            found.setdefault(key, []).append(time)
    return {key: sorted(times)[len(times) // 2] for key, times in found.items()}
