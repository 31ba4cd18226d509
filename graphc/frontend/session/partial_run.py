"""Partial runs: one step of a session in several calls.

    r1 = a + b     setup: fetch r1, r2; feed a, b, c
    r2 = r1 * c    call 1: feed a, b, fetch r1      runs the +, keeps r1
                   call 2: feed c, fetch r2         runs the *

Each call runs what its fetches need and has not run yet.  Of what ran, the frontier is kept: the
values that the rest of the step will read, and those that are declared but not yet fetched.  Where
a sequence of calls can lead is found and compiled once, and shared by all handles of one set-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphc.base.record import record
from graphc.errors import FeedError, GraphError
from graphc.forks import fork_safe_lock
from graphc.frontend.session.fetches import Request, unfed
from graphc.frontend.session.session_graph import Growing
from graphc.frontend.session.session_step import Array, Ledger, Shapes, Step, checked, tensor_of
from graphc.frontend.trace.tree import unique_names
from graphc.ir.graph import Graph, Node
from graphc.ir.subgraph import Edge, Subgraph, edge_of, edges_of, needs, subgraph
from graphc.ir.types import Type

if TYPE_CHECKING:
    from graphc.frontend.session.session import Session


@record(frozen=True)
class Progress:
    """How far a step has come: the nodes that ran (flags by id), the edges that were fed and
    fetched, and those whose value is still needed.  `moves` are the calls made from here."""

    done: list[bool]
    fed: frozenset[Edge]
    fetched: frozenset[Edge]
    kept: frozenset[Edge]
    moves: dict[Any, Move]


@record(frozen=True)
class Move:
    """One call: the step that computes the edges `computed` (None if nothing is left to run), and
    how far that leads."""

    step: Step | None
    computed: tuple[Edge, ...]
    progress: Progress


class Setup:
    """A declared step: its pruned graph, and the calls that have been made of it."""

    def __init__(
        self, growing: Growing, request: Request, pruned: Subgraph, ledger: Ledger
    ) -> None:
        self.graph = pruned.graph
        self.fetches = {edge: growing.title(edge) for edge in request.fetches}
        self.feeds = {edge: growing.title(edge) for edge in request.feeds}
        self.params = dict(zip(pruned.feeds, self.graph.params))
        nothing: frozenset[Edge] = frozenset()
        self.first = Progress([False] * self.graph.next_id, nothing, nothing, nothing, {})
        self._ledger = ledger
        self._names = {id: name for name, id in self.graph.names.items()}
        self._names |= {p.id: p.attrs["name"] for p in self.graph.params}

    def name(self, edge: Edge) -> str:
        """How an edge of the pruned graph is called."""
        stem = self._names.get(edge[0], f"%{edge[0]}")
        return self.fetches.get(edge) or (f"{stem}:{edge[1]}" if edge[1] else stem)

    def move(self, progress: Progress, fetches: tuple[Edge, ...], fed: frozenset[Edge]) -> Move:
        """The call that fetches and feeds these edges (of the pruned graph) from there on."""
        key = (fetches, fed)
        found = progress.moves.get(key)
        if found is None:
            with self._ledger.lock:
                found = progress.moves.get(key)
                if found is None:
                    found = progress.moves[key] = self._new_move(progress, fetches, fed)
        return found

    def _new_move(
        self, progress: Progress, fetches: tuple[Edge, ...], fed: frozenset[Edge]
    ) -> Move:
        present = {edge: self.name(edge) for edge in sorted(progress.kept | progress.fed | fed)}
        wanted = [edge for edge in dict.fromkeys(fetches) if edge not in progress.kept]
        # What a node comes after runs no later than the node, whatever its effect.
        roots = [edge[0] for edge in wanted]
        found = needs(self.graph, roots, present, progress.done, waits=lambda node: True)
        if found.missing:
            error = unfed(found.missing, "not fed yet")
            error.message = f"{', '.join(map(self.name, wanted))} cannot be fetched now: " + (
                error.message
            )
            raise error
        after = self._after(progress, found.live, frozenset(fetches), fed)
        new = sorted(after.kept - progress.kept - after.fed)
        computed = (*wanted, *(edge for edge in new if edge not in wanted))
        if not computed:
            return Move(None, (), after)
        names = unique_names([self.name(edge) for edge in computed])
        pruned = subgraph(self.graph, dict(zip(names, computed)), present, found.live)
        for name, result in zip(names, pruned.graph.results):
            if not isinstance(result.type, Type):
                raise _cannot_wait(name, result)
        return Move(Step(pruned, f"{', '.join(names[:4])} in parts", self._ledger), computed, after)

    def _after(
        self, progress: Progress, live: list[bool], fetches: frozenset[Edge], fed: frozenset[Edge]
    ) -> Progress:
        """How far the step is once the live nodes have run."""
        done = list(progress.done)
        for node in self.graph.nodes:
            # Constants are data: they are part of every piece that reads them.
            if live[node.id] and not node.op.traits.stored:
                done[node.id] = True
        fed, fetched = progress.fed | fed, progress.fetched | fetches
        used = self.fetches.keys() - fetched
        for node in self.graph.nodes:
            if not done[node.id] and node.op.traits.item and not isinstance(node.type, Type):
                used.add(edge_of(node))
            elif not done[node.id] and not node.op.traits.item:
                used.update(edge for source in node.inputs for edge in edges_of(source))
        kept = frozenset(edge for edge in used if edge in fed or done[edge[0]])
        return Progress(done, fed, fetched, kept, {})


def _cannot_wait(name: str, node: Node) -> FeedError:
    error = FeedError(
        f"{name} is a {node.type}, which cannot wait for the next call of a partial run",
        hint="fetch what needs it in the same call",
    )
    error.at(node.loc, node.describe())
    return error


class PartialRun:
    """A handle: one execution of a declared step, as far as it has come."""

    def __init__(self, session: Session, setup: Setup) -> None:
        self.session = session
        self._setup = setup
        self._progress = setup.first
        self._fed: set[Edge] = set()
        self._values: dict[Edge, Array] = {}
        self._shapes: Shapes = ()
        self._failed = False
        self._lock = fork_safe_lock()
        self.graphs: tuple[Graph, ...] = ()  # what ran, one graph for each call that ran anything

    def __repr__(self) -> str:
        made = len(self._progress.fetched)
        state = "failed" if self._failed else f"{made} of {len(self._setup.fetches)} fetched"
        return f"<graphc partial run: {state}>"

    @property
    def finished(self) -> bool:
        """Whether every declared fetch has been made."""
        return self._progress.fetched == self._setup.fetches.keys()

    def call(self, fetches: tuple[Edge, ...], feeds: Mapping[Edge, Any]) -> list[Array]:
        """The values of the fetches; both are edges of the session's graph."""
        with self._lock:
            self._refuse(fetches, feeds)
            params = self._setup.params
            given = {
                (params[edge].id, 0): (params[edge], checked(params[edge], value))
                for edge, value in feeds.items()
                if edge in params
            }
            move = self._setup.move(self._progress, fetches, frozenset(given))
            shapes = ((p.attrs["name"], tensor_of(p), a.shape) for p, a in given.values())
            pool = self._values | {edge: array for edge, (_, array) in given.items()}
            self._shapes += tuple(shapes)
            self._run(move, pool)
            # A value that is kept must not change when the caller writes to the array.
            kept = move.progress.kept
            values = [pool[edge].copy() if edge in kept else pool[edge] for edge in fetches]
            self._values = {e: pool[e].copy() if e in given else pool[e] for e in kept}
            self._progress = move.progress
            self._fed |= feeds.keys()
            return values

    def _run(self, move: Move, pool: dict[Edge, Array]) -> None:
        if move.step is None:
            return
        arrays = [pool[edge] for edge in move.step.feeds]
        self.graphs += (move.step.graph,)
        executable = move.step.build(arrays, self._shapes).executable
        try:
            results = executable.run(arrays)
        except GraphError:
            self._failed = True
            self._values = {}
            raise
        pool.update(zip(move.computed, results))

    def _refuse(self, fetches: Iterable[Edge], feeds: Iterable[Edge]) -> None:
        """Raise FeedError for a call that the declaration does not allow."""
        again = "session.partial_run_setup gives a new handle"
        if self._failed:
            raise FeedError("this partial run failed in an earlier call", hint=again)
        if self.finished:
            raise FeedError("this partial run is finished: every fetch was made", hint=again)
        kinds = (
            ("fetch", "fetched", fetches, self._setup.fetches, self._progress.fetched),
            ("feed", "fed", feeds, self._setup.feeds, self._fed),
        )
        for kind, verb, edges, declared, before in kinds:
            for edge in edges:
                name = self.session.title(edge)
                if edge not in declared:
                    listed = ", ".join(list(declared.values())[:12]) or "none"
                    raise FeedError(
                        f"{name!r} is no declared {kind} of this partial run",
                        hint=f"declared: {listed}",
                    )
                if edge in before:
                    raise FeedError(f"{name!r} was {verb} before in this partial run", hint=again)
