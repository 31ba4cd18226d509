"""Memory that is taken over: results in donated arguments, new values in the variables themselves.

A kernel may write where another value lies if every other reader of that value has run before, and
if it reads the value itself only at the place it writes: element by element, before the store.

    v' = v - 0.1 * g    reads v[i], writes v[i]: in place        v' = v - v.T    a copy at the end
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphc.codegen.copies import copied_by
from graphc.codegen.lowering.patch import patched_param
from graphc.codegen.lowering.rows import levels_of
from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import last_reads, memory, root, roots
from graphc.ir.op import Scalar
from graphc.ir.types import AnyType, Type, leaves
from graphc.ir.verify import broken
from graphc.ops.order import Key
from graphc.record import record

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
    readers = readers_of(graph, free.values())
    times = times_of(graph)
    for result, candidates in by_name(graph, free):
        if made[result] >= 0 or memories.index(memories[result]) != result:
            continue
        for number in candidates:
            param = graph.params[number]
            if number in free and takes_over(
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
        if node.op.name in ("read", "assign"):
            key = node.attrs["container"], node.attrs["name"]
            nodes = found.setdefault(key, {})
            if any(other.type is not node.type for other in nodes.values()):
                raise broken(graph, node, f"%{node.id} uses variable {key[1]!r} as another type")
            nodes[node.op.name] = node
    return found


def written_in_place(graph: Graph, *, may_stage: bool = False) -> dict[Leaf, str]:
    """The leaves of kernels that are written straight into a variable, and its base register."""
    used = variables(graph)
    reads = [nodes["read"] for nodes in used.values() if "read" in nodes]
    readers = readers_of(graph, reads)
    times = times_of(graph)
    results = {memory(result) for result in graph.results}
    made: dict[Leaf, str] = {}
    for number, nodes in enumerate(used.values()):
        if "assign" not in nodes:
            continue
        value = nodes["assign"].inputs[0]
        read, leaf = nodes.get("read"), memory(value)
        if leaf[0].op.name not in ("fused", "cond") or leaf in results or leaf in made:
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
    issued = {n: end if n.op.name == "assign" else k for k, n in enumerate(graph.nodes)}
    return Times(issued, last_reads(graph))


def takes_over(
    result: Node,
    held: Node,
    readers: Iterable[Node],
    times: Times,
    *,
    may_stage: bool = False,
) -> bool:
    """May a kernel's result lie where `held` lies, given who reads that and the issue order?"""
    kernel, leaf = memory(result)
    if not (result.type is leaf_type(kernel, leaf) is held.type):
        return False
    while (source := updated(kernel, times)) is not None:
        kernel, leaf = source, 0  # the memory is written from here on
    in_place = {"fused": reads_in_place, "cond": branches_in_place}.get(kernel.op.name)
    if in_place is None:
        return False
    first = min(times.issued[writer] for writer in writers(kernel))
    return all(
        times.issued[reader] < first
        or (reader is kernel and in_place(kernel, leaf, held, may_stage))
        for reader in readers
    )


def writers(kernel: Node) -> list[Node]:
    """A kernel, and those that may have written parts of its result there before it runs."""
    sources = (memory(kernel.inputs[number])[0] for number, _ in copied_by(kernel))
    return [kernel, *(source for source in sources if source.op.name == "fused")]


def updated(kernel: Node, times: Times) -> Node | None:
    """The kernel whose result an update changes, if nothing reads that afterwards.

    It may then lie where the update's result lies, and only the elements that change are written.
    """
    number = changed_operand(kernel) if kernel.op.name == "fused" else None
    if number is None:
        return None
    source = kernel.inputs[number]
    if source.op.name != "fused" or not isinstance(source.type, Type):
        return None
    last = times.last[source] == times.issued[kernel]
    alone = sum(root(n) is source for n in kernel.inputs) == 1
    return source if alone and last else None


def with_updates(graph: Graph, homes: dict[Leaf, str]) -> dict[Leaf, str]:
    """Where values lie: an array that is updated again and again where its last update does."""
    made = dict(homes)
    times = times_of(graph)
    for (kernel, leaf), home in homes.items():
        found = kernel if leaf == 0 else None
        while found is not None and (found := updated(found, times)) is not None:
            if (found, 0) in made:
                break
            made[found, 0] = home
    return made


def changed_operand(kernel: Node) -> int | None:
    """The number of the operand that a kernel's result is but for some elements."""
    region, last = kernel.regions[0], kernel.regions[0].nodes[-1]
    if kernel.attrs["kind"] == "loop":
        return patched_param(region)
    array = last.inputs[0] if last.op.name == "scatter" else None
    found = array is not None and scatters_onto(region, {array})
    return region.params.index(array) if array is not None and found else None


def branches_in_place(node: Node, leaf: int, held: Node, may_stage: bool = False) -> bool:
    """May either branch of a cond leave a result where `held` lies, which the branches read?"""
    passed = [k for k, n in enumerate(node.inputs[1:]) if root(n) is held]
    if root(node.inputs[0]) is held or any(node.inputs[k + 1] is not held for k in passed):
        return False
    for region in node.regions:
        times = times_of(region)
        memories = [memory(result) for result in region.results]
        params = [region.params[k] for k in passed]
        for param, readers in readers_of(region, params).items():
            if memories[leaf] == (param, 0):
                continue
            written = takes_over(region.results[leaf], param, readers, times, may_stage=may_stage)
            if (param, 0) in memories or memories.index(memories[leaf]) != leaf or not written:
                return False
    return True


def leaf_type(node: Node, leaf: int) -> AnyType:
    return leaves(node.type)[leaf]


def reads_in_place(kernel: Node, leaf: int, held: Node, may_stage: bool = False) -> bool:
    """Does the kernel read `held` only at the place where it writes a leaf, and before?

    The sums of a contraction must be staged (kept apart from results), which `may_stage` promises.
    A leaf that does not depend on `held` could be stored before another leaf reads it, and so could
    one that an earlier pass over a row stores than the last that reads it.
    """
    region, kind = kernel.regions[0], kernel.attrs["kind"]
    pairs = [(p, n) for p, n in zip(region.params, kernel.inputs) if root(n) is held]
    if any(n is not held for _, n in pairs):
        return False
    reached = {p for p, _ in pairs}
    if kind == "library":
        return scatters_onto(region, reached)
    if (number := patched_param(region)) is not None:
        return kind == "loop" and reached == {region.params[number]}
    if kind not in ("loop", "staged") and not (kind == "contract" and may_stage):
        return False
    shape = held.type.shape if isinstance(held.type, Type) else None
    for node in region.nodes:
        if not reached.isdisjoint(node.inputs):
            same = isinstance(node.type, Type) and node.type.shape == shape
            if not (isinstance(node.op.lower, Scalar) and same):
                return False
            reached.add(node)
    levels = levels_of(region)
    last = max((levels[r.id] for r in region.results if r in reached), default=0)
    return region.results[leaf] in reached and levels[region.results[leaf].id] == last


def scatters_onto(region: Graph, reached: set[Node]) -> bool:
    """Is the value read by a scatter alone, as what it changes?"""
    last = region.nodes[-1]
    uses = [(n, k) for n in region.nodes for k, i in enumerate(n.inputs) if i in reached]
    return last.op.name == "scatter" and uses == [(last, 0)]


def readers_of(graph: Graph, held: Iterable[Node]) -> dict[Node, list[Node]]:
    """For each of these values the nodes that read its memory, aliases included."""
    found: dict[Node, list[Node]] = {node: [] for node in held}
    for node in graph.nodes:
        for source in node.inputs:
            for lies in roots(source):
                if lies in found:
                    found[lies].append(node)
    return found
