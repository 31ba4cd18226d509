"""Memory that is taken over: results in donated arguments, new values in the variables themselves.

A kernel may write where another value lies if every other reader of that value has run before, and
if it reads the value itself only at the place it writes: element by element, before the store.

    v' = v - 0.1 * g    reads v[i], writes v[i]: in place        v' = v - v.T    a copy at the end
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from weakref import WeakKeyDictionary

from graphc.base.record import record
from graphc.codegen.lowering.in_place_update import patched_param
from graphc.codegen.lowering.row_pairs import repeats_pairs
from graphc.codegen.lowering.rows import levels_of
from graphc.codegen.table.copies import copied_by
from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import last_reads, memory, root, roots
from graphc.ir.op import STATE, Alias, Compute, Effect, Library, Scalar
from graphc.ir.regions import choosers, operands_of
from graphc.ir.types import AnyType, Type, leaves
from graphc.ir.verify import broken
from graphc.ops.record.effects import Key

Leaf = tuple[Node, int]  # a node and the number of one of its leaves


def donations(graph: Graph, names: tuple[str, ...], *, may_stage: bool = False) -> tuple[int, ...]:
    """For each result the number of the parameter whose memory it takes over, or -1.

    `names` are argument names; "params" donates every parameter called "params" or "params.…".
    A parameter that is a result as it is stays where it is.
    """
    if not names:
        return ()
    memories = [memory(result) for result in graph.results]
    made = [-1] * len(memories)
    free: dict[int, Node] = {}
    for number, param in enumerate(graph.params):
        if not is_named(param.attrs["name"], names):
            continue
        if (param, 0) not in memories:
            free[number] = param
        elif graph.results[first := memories.index((param, 0))].type is param.type:
            made[first] = number
    readers = memory_readers(graph, free.values())
    times = times_of(graph)
    for result, candidates in by_name(graph, free):
        if made[result] >= 0 or memories.index(memories[result]) != result:
            continue
        for number in candidates:
            param = graph.params[number]
            same = number in free and graph.results[result].type is param.type
            if same and takes_over(
                graph.results[result], param, readers[param], times, may_stage=may_stage
            ):
                made[result] = number
                del free[number]
                break
    return tuple(made)


def is_named(name: str, names: tuple[str, ...]) -> bool:
    """Is it an argument of these names, or part of one?"""
    return any(name == n or name.startswith(f"{n}.") for n in names)


def by_name(graph: Graph, params: dict[int, Node]) -> Iterator[tuple[int, list[int]]]:
    """Results with parameters that may suit them: those that share most of their names first.

    "0.params.w" suits "state.params.w" better than "state.momentum.w".
    """
    known: dict[str, list[int]] = {}
    for number, param in params.items():
        for ending in endings(param.attrs["name"]):
            known.setdefault(ending, []).append(number)
    pairs = [(e, k) for k, name in enumerate(graph.result_names) for e in endings(name)]
    for ending, result in sorted(pairs, key=lambda pair: -pair[0].count(".")):
        yield result, known.get(ending, [])
    for result in range(len(graph.results)):
        yield result, list(params)


def endings(name: str) -> list[str]:
    """ "a.b.c", "b.c" and "c"."""
    parts = name.split(".")
    return [".".join(parts[k:]) for k in range(len(parts))]


# ------------------------------------------------------------------------------------ variables


def variables(graph: Graph) -> dict[Key, dict[str, Node]]:
    """The variables of a graph in order of appearance: number K lies at base register "vK".

    Each has its "read" or "assign" node or both.  Raises VerifyError where these have two types.
    """
    found: dict[Key, dict[str, Node]] = {}
    for node in graph.nodes:
        if node.op.effect in STATE:
            key = node.attrs["container"], node.attrs["name"]
            nodes = found.setdefault(key, {})
            if any(other.type is not node.type for other in nodes.values()):
                raise broken(graph, node, f"%{node.id} uses variable {key[1]!r} as another type")
            nodes["assign" if node.op.effect is Effect.WRITE else "read"] = node
    return found


def written_in_place(graph: Graph, *, may_stage: bool = False) -> dict[Leaf, str]:
    """The leaves of kernels that are written straight into a variable, and its base register."""
    used = variables(graph)
    if not used:
        return {}
    reads = [nodes["read"] for nodes in used.values() if "read" in nodes]
    readers = memory_readers(graph, reads)
    times = times_of(graph)
    results = {memory(result) for result in graph.results}
    made: dict[Leaf, str] = {}
    for number, nodes in enumerate(used.values()):
        if "assign" not in nodes:
            continue
        value = nodes["assign"].inputs[0]
        read, leaf = nodes.get("read"), memory(value)
        if rule_in_place(leaf[0]) is None or leaf in results or leaf in made:
            continue
        kept = read is not None and (read, 0) in results
        if read is None or (
            not kept and takes_over(value, read, readers[read], times, may_stage=may_stage)
        ):
            made[leaf] = f"v{number}"
    return made


# ------------------------------------------------------------------------------------ safety


@record(frozen=True)
class Times:
    """When each node of a graph is issued, and when its memory is read last.

    What is assigned is copied to its variable at the end, wherever the assign stands.
    """

    issued: dict[Node, int]
    last: dict[Node, int]


def times_of(graph: Graph) -> Times:
    end = len(graph.nodes)
    issued = {n: end if n.op.effect is Effect.WRITE else k for k, n in enumerate(graph.nodes)}
    return Times(issued, last_reads(graph))


def takes_over(
    result: Node, held: Node, readers: Iterable[Node], times: Times, *, may_stage: bool = False
) -> bool:
    """May a kernel's result lie where `held` lies, given who reads that and the issue order?"""
    kernel, leaf = memory(result)
    if not (same_bytes(result.type, held.type) and same_bytes(leaf_type(kernel, leaf), held.type)):
        return False
    while (source := updated((kernel, leaf), times)) is not None:
        kernel, leaf = source  # the memory is written from here on
    in_place = rule_in_place(kernel)
    if in_place is None:
        return False
    first = min(times.issued[writer] for writer in writers(kernel))
    return all(
        times.issued[reader] < first
        or (reader is kernel and in_place(kernel, leaf, held, may_stage))
        for reader in readers
    )


def same_bytes(one: AnyType, other: AnyType) -> bool:
    """Are both arrays of one element type and size? Their shapes may differ."""
    if not isinstance(one, Type) or not isinstance(other, Type):
        return False
    return one is other or (
        one.is_static and other.is_static and one.dtype is other.dtype and one.size == other.size
    )


def writers(kernel: Node) -> list[Node]:
    """A kernel, and those that may have written parts of its result there before it runs."""
    sources = (memory(kernel.inputs[number])[0] for number, _ in copied_by(kernel))
    return [kernel, *(source for source in sources if source.op.traits.kernel)]


def updated(leaf: Leaf, times: Times) -> Leaf | None:
    """The value that an update, a loop or a branch changes, if nothing reads that afterwards.

    It may then lie where the result lies, and only the elements that change are written.
    """
    kernel, number = leaf
    held = changed_value(kernel, number)
    if held is None or held.op.traits.parameter:
        return None
    source, part = memory(held)
    readers = [n for n in kernel.inputs if memory(n) == (source, part)]
    if rule_in_place(source) is None or readers != [held] or source not in times.last:
        return None
    if times.last[source] != times.issued[kernel]:
        return None
    fits = same_bytes(leaf_type(source, part), leaf_type(kernel, number))
    return (source, part) if fits and is_kept_alone(source) else None


def is_kept_alone(source: Node) -> bool:
    """Do the leaves of a value not follow one another through a loop?"""
    return not source.op.traits.loop or source.attrs["carries"] == len(leaves(source.type))


def with_updates(graph: Graph, homes: dict[Leaf, str]) -> dict[Leaf, str]:
    """Where values lie: an array that is updated again and again where its last update does."""
    made = dict(homes)
    times = times_of(graph)
    for leaf, home in homes.items():
        found = updated(leaf, times)
        while found is not None and found not in made:
            made[found] = home
            found = updated(found, times)
    return made


def changed_value(kernel: Node, leaf: int) -> Node | None:
    """The operand in whose memory a kernel, loop or branch may leave its result, if it is one that
    writes there what changes and nothing else."""
    if kernel.op.traits.kernel:
        number = changed_operand(kernel)
        return None if number is None else kernel.inputs[number]
    if kernel.op.traits.loop and leaf < kernel.attrs["carries"]:
        held = kernel.inputs[leaf]
        return held if loops_in_place(kernel, leaf, held) else None
    if kernel.op.traits.branch:
        for held in operands_of(kernel):
            fits = same_bytes(held.type, leaf_type(kernel, leaf))
            if fits and branches_in_place(kernel, leaf, held):
                return held
    return None


class Copies:
    """Why arrays of a graph are copied that are only changed in places: for people."""

    def __init__(self, graph: Graph) -> None:
        self.last: dict[Node, Node] = {}  # who reads a value last
        for node in graph.nodes:
            for source in node.inputs:
                self.last |= dict.fromkeys(roots(source), node)
        self.results = {r for result in graph.results for r in roots(result)}

    def reason(self, kernel: Node, held: Node) -> str:
        """Why the result of a kernel does not lie where the array lies that it changes."""
        source = root(held)
        array, last = f"%{source.id}", self.last[source]
        if source.op.traits.stored:
            found = f"{array} is a constant"
        elif source in self.results:
            found = f"{array} is a result as well"
        elif last is not kernel:
            found = f"%{last.id} reads {array} afterwards"
        elif source.op.traits.parameter:
            found = f"{array} belongs to the caller, who does not donate it"
        else:
            found = f"the kernel computes more from {array} than the elements that change"
        return f"copies its array: {found}"


def written_operand(kernel: Node) -> Node | None:
    """The operand that a kernel changes in places, whether in its memory or in a copy."""
    if not kernel.op.traits.kernel:
        return None
    for node in kernel.regions[0].results:
        lower = node.op.lower
        if isinstance(lower, Compute | Library) and lower.updates:
            array = node.inputs[0]
            while isinstance(array.op.lower, Alias):
                array = array.inputs[0]
            if array in kernel.regions[0].params:
                return kernel.inputs[kernel.regions[0].params.index(array)]
    return None


def changed_operand(kernel: Node) -> int | None:
    """The number of the operand that a kernel's result is but for some elements."""
    region, last = kernel.regions[0], kernel.regions[0].nodes[-1]
    if kernel.attrs["kind"] == "loop":
        return patched_param(region)
    lower = last.op.lower
    array = last.inputs[0] if isinstance(lower, Library) and lower.updates else None
    found = array is not None and scatters_onto(region, {array})
    return region.params.index(array) if array is not None and found else None


def loops_in_place(node: Node, leaf: int, held: Node, may_stage: bool = False) -> bool:
    """Does a loop leave a carry where it was given it, which it does not read in another way?"""
    carries: int = node.attrs["carries"]
    passed = [k for k, n in enumerate(node.inputs) if memory(n) == memory(held)]
    return passed == [leaf] and leaf < carries and stays_in_place(node.regions[-1], leaf, may_stage)


# What `stays_in_place` has found: loops in loops would ask of the innermost again and again.
_STAYS: WeakKeyDictionary[Graph, dict[tuple[int, bool], bool]] = WeakKeyDictionary()


def stays_in_place(body: Graph, carry: int, may_stage: bool = False) -> bool:
    """Does a run of a body leave a carry where it lies, as it is or overwritten?"""
    known = _STAYS.setdefault(body, {})
    found = known.get((carry, may_stage))
    if found is None:
        found = known[carry, may_stage] = _stays_in_place(body, carry, may_stage)
    return found


def _stays_in_place(body: Graph, carry: int, may_stage: bool) -> bool:
    result, param = body.results[carry], body.params[carry]
    memories = [memory(r) for r in body.results]
    if memories[carry] == (param, 0):
        return memories.count((param, 0)) == 1
    if memories.count(memories[carry]) > 1 or (param, 0) in memories:
        return False
    readers = memory_readers(body, (param,))[param]
    return takes_over(result, param, readers, times_of(body), may_stage=may_stage)


def branches_in_place(node: Node, leaf: int, held: Node, may_stage: bool = False) -> bool:
    """May every region of a branch leave a result where `held` lies, which the branches read?"""
    passed = [k for k, n in enumerate(operands_of(node)) if memory(n) == memory(held)]
    flags = node.inputs[: choosers(node)]
    if memory(held) in map(memory, flags) or not passed:
        return False
    for region in node.regions:
        times = times_of(region)
        memories = [memory(result) for result in region.results]
        params = [region.params[k] for k in passed]
        for param, readers in memory_readers(region, params).items():
            if memories[leaf] == (param, 0):
                continue
            written = takes_over(region.results[leaf], param, readers, times, may_stage=may_stage)
            if (param, 0) in memories or memories.index(memories[leaf]) != leaf or not written:
                return False
    return True


def leaf_type(node: Node, leaf: int) -> AnyType:
    return leaves(node.type)[leaf]


def reads_in_place(kernel: Node, leaf: int, held: Node, may_stage: bool = False) -> bool:
    """Does the kernel read `held` only at the place where it writes a leaf, and before?"""
    pairs = zip(kernel.regions[0].params, kernel.inputs, strict=True)
    return may_overwrite(kernel, leaf, {p for p, n in pairs if root(n) is held}, may_stage)


def may_overwrite(kernel: Node, leaf: int, held: set[Node], may_stage: bool = False) -> bool:
    """Does a kernel read these parameters, which are one array, only where it writes a leaf?

    The sums of a contraction must be staged (kept apart from results), which `may_stage` promises.
    A leaf that does not depend on `held` could be stored before another leaf reads it, and so could
    one that an earlier pass over a row stores than the last that reads it, or one stored twice.
    """
    region, kind, reached = kernel.regions[0], kernel.attrs["kind"], set(held)
    if kind == "library":
        return scatters_onto(region, reached)
    if (number := patched_param(region)) is not None:
        return kind == "loop" and reached == {region.params[number]}
    if kind not in ("loop", "staged") and not (kind == "contract" and may_stage):
        return False
    if kind == "loop" and repeats_pairs(region):
        return False
    shapes = {p.type.shape for p in reached if isinstance(p.type, Type)}
    if len(shapes) > 1:
        return False
    shape = next(iter(shapes), None)
    for node in region.nodes:
        if not reached.isdisjoint(node.inputs):
            same = isinstance(node.type, Type) and node.type.shape == shape
            if not (isinstance(node.op.lower, Scalar) and same):
                return False
            reached.add(node)
    levels = levels_of(region)
    last = max((levels[r.id] for r in region.results if r in reached), default=0)
    return region.results[leaf] in reached and levels[region.results[leaf].id] == last


def rule_in_place(node: Node) -> Callable[..., bool] | None:
    """What says whether a node may write a result where an operand lies; None if none ever may."""
    if node.op.traits.kernel:
        return reads_in_place
    if node.op.traits.branch:
        return branches_in_place
    return loops_in_place if node.op.traits.loop else None


def scatters_onto(region: Graph, reached: set[Node]) -> bool:
    """Is the value read by a scatter alone, as what it changes?"""
    last = region.nodes[-1]
    uses = [(n, k) for n in region.nodes for k, i in enumerate(n.inputs) if i in reached]
    updates = isinstance(last.op.lower, Library) and last.op.lower.updates
    return updates and uses == [(last, 0)]


def memory_readers(graph: Graph, held: Iterable[Node]) -> dict[Node, list[Node]]:
    """For each of these values the nodes that read its memory, aliases included."""
    found: dict[Node, list[Node]] = {node: [] for node in held}
    for node in graph.nodes:
        for source in node.inputs:
            for lies in roots(source):
                if lies in found:
                    found[lies].append(node)
    return found
