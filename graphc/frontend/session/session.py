"""Session: one graph that grows, and runs of whatever part of it is asked for.

    s = gc.Session()
    s.extend(model.graph(gc.spec((4, 8))))
    s.run("loss", {"x": x})                    fetches by name: a str, or any nesting of them
    s.run({"y": "y", "h": "h:0"}, {"b": b})    any edge may be fed

What runs is exactly what the fetches need given the feeds.  It is compiled when that combination
is first seen, and again only for feeds of other shapes where the graph leaves dimensions open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphc.base.record import replace
from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.errors import FeedError, GraphError, TraceError
from graphc.forks import fork_safe_lock
from graphc.frontend.compile.variant import Compile
from graphc.frontend.files.gir_files import graph_of
from graphc.frontend.session.fetches import (
    Names,
    Request,
    as_names,
    feeds_of,
    fetches_of,
    pruned_for,
    request_of,
)
from graphc.frontend.session.inlined_calls import opened
from graphc.frontend.session.partial_run import PartialRun, Setup
from graphc.frontend.session.session_graph import Growing
from graphc.frontend.session.session_step import Ledger, Step
from graphc.frontend.trace.trace import without_internal_frames
from graphc.frontend.trace.tree import LEAF, TreeDef, flatten, unflatten
from graphc.ir.graph import Graph
from graphc.ir.subgraph import Edge
from graphc.ops.record.value import current

if TYPE_CHECKING:
    from graphc.passes.pipeline import StageResult

_NO_FEEDS: dict[str, Any] = {}
_NO_TARGETS: tuple[str, ...] = ()
_NOT_RUN = object()


def _are_names(inputs: Any) -> bool:
    """Whether it is a dict of names to names."""
    pairs = inputs.items() if isinstance(inputs, Mapping) else [(inputs, None)]
    return all(isinstance(name, str) for pair in pairs for name in pair)


class Session:
    """A graph that grows and runs in parts; options are those of `gc.compile`, and `donate` names
    feeds whose memory results may take over.

    `compiles` is the ledger: one `Compile` per compilation.  A session may be used by several
    threads at once: `extend` waits for a compilation in progress, runs wait for neither.
    """

    @refusing
    def __init__(self, **options: Any) -> None:
        donate = options.pop("donate", ())
        donated = (donate,) if isinstance(donate, str) else tuple(donate)
        self.config = Config.create(donate=donated, **options)
        self.compiles: list[Compile] = []
        self._lock = fork_safe_lock()
        self._ledger = Ledger(self.config, self._lock, self.compiles)
        self._growing = Growing()
        self._plans: dict[Any, Plan] = {}
        self._steps: dict[Any, Step] = {}
        self._setups: dict[Any, Setup] = {}

    def __repr__(self) -> str:
        nodes = len(self._growing.builder.nodes)
        return f"<graphc session: {nodes} nodes, {len(self.compiles)} compiled>"

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that can be fed or fetched."""
        with self._lock:
            return tuple(self._growing.names)

    def extend(
        self, graph: Any, *, inputs: Mapping[str, str] | None = None, scope: str = ""
    ) -> Any:
        """Append a graph: a Graph, its text, or a loaded graph.  Returns what fetches its results.

        Its parameters become placeholders, except those that `inputs` binds to values that are
        already here: {"parameter": "name:port"}.  `scope` is put before every new name.  Raises
        GraphError, and leaves the session as it was, for a name that is taken or a type that does
        not fit.
        """
        with _plain_errors():
            found = graph_of("extend", graph)
            bound = {} if inputs is None else inputs
            if not isinstance(scope, str) or not _are_names(bound):
                raise FeedError('inputs is a dict {"parameter": "name"} and scope a str')
            found = opened(found, self.config)
            with self._lock:
                return self._growing.extend(found, bound, scope)

    # -------------------------------------------------------------------------------- running

    def run(
        self, fetches: Any, feeds: Mapping[str, Any] | None = None, *, targets: Names = _NO_TARGETS
    ) -> Any:
        """The values of the fetches, nested as these are, given values for the feeds.

        `targets` are nodes to run for their effect only.  Raises FeedError for a name or feed that
        does not fit, and for a placeholder that is needed but not fed.
        """
        feeds = _NO_FEEDS if feeds is None else feeds
        if targets is not _NO_TARGETS:
            targets = as_names(targets)
        try:
            plan = self._plans.get(_key(fetches, feeds, targets))
        except TypeError:  # nested fetches, or what is no name at all
            plan = None
        if plan is not None:
            made = plan.warm(feeds)
            if made is not _NOT_RUN:
                return made
        with _plain_errors():
            return (plan or self._plan(fetches, feeds, targets)).run(feeds)

    def graph(
        self, fetches: Any = None, feeds: Iterable[str] = (), *, targets: Names = _NO_TARGETS
    ) -> Graph:
        """The graph that runs for these fetches and names of feeds; without any, all of it."""
        with _plain_errors(), self._lock:
            if fetches is None and not targets:
                whole = self._growing.graph()
                return whole.replace(nodes=list(whole.nodes))
            return pruned_for(
                self._growing, request_of(self._growing, fetches, feeds, targets)
            ).graph

    def stages(
        self, fetches: Any, feeds: Mapping[str, Any] | None = None, *, targets: Names = _NO_TARGETS
    ) -> tuple[StageResult, ...]:
        """Every stage of the compilation behind a run: (name, Graph or Program, seconds, note)."""
        feeds = _NO_FEEDS if feeds is None else feeds
        with _plain_errors():
            plan = self._plan(fetches, feeds, targets)
            return plan.step.build(plan.arrays(feeds)).stages

    def _plan(self, fetches: Any, feeds: Mapping[str, Any], targets: Names) -> Plan:
        """How to run this combination of fetches, feeds and targets; found once."""
        if current() is not None:
            raise TraceError(
                "a session cannot run inside a function that is being traced",
                hint="call the compiled function there, or gc.load a saved graph and call that",
            )
        if not isinstance(feeds, Mapping):
            raise FeedError(
                f"feeds must be a dict, got {type(feeds).__name__}", hint='feeds={"x": array}'
            )
        leaves, tree = flatten(fetches, keep_order=True)
        key = ((tree, *leaves), as_names(targets), *feeds)
        with self._lock:
            plan = self._plans.get(key) if _all_str(leaves) else None
            if plan is None:
                plan = self._plans[key] = self._new_plan(
                    request_of(self._growing, fetches, feeds, targets)
                )
            if _is_plain(fetches):
                self._plans[_key(fetches, feeds, as_names(targets))] = plan
        return plan

    def _new_plan(self, request: Request) -> Plan:
        pruned = pruned_for(self._growing, request)
        wanted = (request.fetches, frozenset(pruned.feeds), frozenset(request.targets))
        step = self._steps.get(wanted)
        if step is None:
            title = self._growing.titles_of(request.fetches, request.targets)
            step = self._steps[wanted] = Step(pruned, title, self._ledger)
        names = dict(zip(request.feeds, request.given))
        return Plan(step, request.tree, [names[edge] for edge in step.feeds], request.given)

    def title(self, edge: Edge) -> str:
        """How an edge of the session's graph is called."""
        return self._growing.title(edge)

    # -------------------------------------------------------------------------------- in parts

    def partial_run_setup(self, fetches: Any, feeds: Names = ()) -> PartialRun:
        """Declare a step that is run in several calls: all that will be fetched and fed, by name.

        Every call of `partial_run` with the handle feeds and fetches some of it, each at most once;
        nothing is computed twice.  Raises FeedError as `run` does.
        """
        with _plain_errors(), self._lock:
            request = request_of(self._growing, fetches, feeds)
            key = (request.fetches, frozenset(request.feeds))
            setup = self._setups.get(key)
            if setup is None:
                pruned = pruned_for(self._growing, request)
                # What is kept for later calls is nobody else's to overwrite.
                ledger = Ledger(replace(self.config, donate=()), self._lock, self.compiles)
                setup = self._setups[key] = Setup(self._growing, request, pruned, ledger)
            return PartialRun(self, setup)

    def partial_run(
        self, handle: PartialRun, fetches: Any, feeds: Mapping[str, Any] | None = None
    ) -> Any:
        """The values of some of the fetches that the handle declares, given some of its feeds.

        Raises FeedError for what is not declared or was fetched or fed before, for a fetch that
        needs an input not yet fed, and for a handle whose fetches have all been made.
        """
        given = {} if feeds is None else dict(feeds)
        with _plain_errors():
            if not isinstance(handle, PartialRun) or handle.session is not self:
                raise FeedError("the handle is not one of this session's partial_run_setup")
            with self._lock:
                tree, fetched = fetches_of(self._growing, fetches)
                fed = feeds_of(self._growing, given)
            values = handle.call(fetched, {edge: given[name] for edge, name in fed.items()})
        return unflatten(tree, values)


class Plan:
    """One combination of fetches and feeds: how feeds reach the executable and results nest."""

    __slots__ = ("hot", "is_direct", "nest", "step", "taken")

    def __init__(self, step: Step, tree: TreeDef, taken: list[str], given: tuple[str, ...]) -> None:
        self.step = step
        self.taken = tuple(taken)  # the feeds that are needed, in the order of the parameters
        self.is_direct = self.taken == given
        self.nest = _nest_of(tree)
        # The native entry that ran last and what its failures mean; read and written as one.
        self.hot: tuple[Callable[..., Any], Callable[[int], BaseException]] | None = None

    def warm(self, feeds: Mapping[str, Any]) -> Any:
        """The results for feeds that the native entry takes as they are; else `_NOT_RUN`."""
        if self.hot is None:
            return _NOT_RUN
        entry, failure = self.hot
        values = feeds.values() if self.is_direct else [feeds[name] for name in self.taken]
        try:
            made = entry(*values)
        except MemoryError:
            return _NOT_RUN
        if made is None:
            return _NOT_RUN
        if made.__class__ is int:
            raise without_internal_frames(failure(made))
        return made if self.nest is None else self.nest(made)

    def arrays(self, feeds: Mapping[str, Any]) -> list[Any]:
        return self.step.check([feeds[name] for name in self.taken])

    def run(self, feeds: Mapping[str, Any]) -> Any:
        """Check the feeds, compile for their shapes if that is new, and run."""
        arrays = self.arrays(feeds)
        executable = self.step.build(arrays).executable
        made = executable(*arrays)
        self.hot = executable.entry, executable.failed
        return made if self.nest is None else self.nest(made)


def _nest_of(tree: TreeDef) -> Callable[[Any], Any] | None:
    """What nests an executable's results (one array, or a tuple of several); None if nothing."""
    if tree is LEAF:
        return None
    if tree.count == 1:
        return lambda made: unflatten(tree, (made,))
    if tree.is_shallow and tree.kind in (list, tuple):
        return list if tree.kind is list else None
    return lambda made: unflatten(tree, made)


def _key(fetches: Any, feeds: Mapping[str, Any], targets: Names) -> Any:
    """What a plain request is found again by. Raises TypeError for one that is not plain."""
    kind = fetches.__class__
    if kind is str:
        return fetches, targets, *feeds
    if kind is list or kind is tuple:
        return (kind, *fetches), targets, *feeds
    if kind is dict:
        return (kind, *fetches.items()), targets, *feeds
    raise TypeError


def _is_plain(fetches: Any) -> bool:
    """Whether fetches are a str or a list, tuple or dict of them."""
    kind = type(fetches)
    if kind is str:
        return True
    parts = fetches.values() if kind is dict else fetches
    return kind in (list, tuple, dict) and _all_str(parts)


def _all_str(parts: Iterable[Any]) -> bool:
    return all(type(part) is str for part in parts)


class _plain_errors:
    """A block whose GraphErrors show the user's frames only."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, GraphError):
            raise without_internal_frames(error) from error.__cause__
