"""One broken graph per check of the verifier; the message names what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from graphs import graph

from graphc.codegen.kernels import spec_of
from graphc.config import Config
from graphc.errors import VerifyError
from graphc.ir import verify
from graphc.ir.graph import Builder, Graph, Node, Program
from graphc.ir.op import OPS
from graphc.ir.place import Buffer, Region, parse_device
from graphc.ir.types import tensor
from graphc.passes import pipeline
from graphc.passes.stage import Stage

CPU = parse_device("cpu:0")


def chain() -> Graph:
    return graph(
        """%2 = add(%0, %1) : f32[4]
           %3 = tanh(%2) : f32[4]
           %4 = neg(%3) : f32[4]"""
    )


def with_nodes(g: Graph, nodes: list[Node], **changes: object) -> Graph:
    return g.replace(nodes=nodes, **changes)


def used_before_defined(g: Graph) -> Graph:
    a, b, c = g.nodes
    return with_nodes(g, [b, a, c])


def waits_for_later(g: Graph) -> Graph:
    a, b, c = g.nodes
    return with_nodes(g, [a.replace(after=(c,)), b, c])


def defined_twice(g: Graph) -> Graph:
    a, b, c = g.nodes
    return with_nodes(g, [a, b, c, c.replace()])


def id_out_of_range(g: Graph) -> Graph:
    return with_nodes(g, [*g.nodes, g.nodes[0].replace(id=99)], next_id=g.next_id)


def wrong_type(g: Graph) -> Graph:
    a, b, c = g.nodes
    bad = c.replace(type=tensor(c.type.dtype, (5,)))
    return with_nodes(g, [a, b, bad], results=(bad,))


def ill_typed(g: Graph) -> Graph:
    a, b, c = g.nodes
    bad = c.replace(inputs=(b, a))
    return with_nodes(g, [a, b, bad], results=(bad,))


def foreign_attributes(g: Graph) -> Graph:
    a, b, c = g.nodes
    bad = c.replace(attrs=OPS["transpose"].coerce({"perm": (0,)}))
    return with_nodes(g, [a, b, bad], results=(bad,))


def param_among_nodes(g: Graph) -> Graph:
    extra = g.params[0].replace(id=50)
    return with_nodes(g, [*g.nodes, extra], next_id=51)


def node_among_params(g: Graph) -> Graph:
    return g.replace(params=(*g.params, g.nodes[0].replace(id=60)), next_id=61)


def dangling_result(g: Graph) -> Graph:
    return g.replace(results=(g.nodes[2].replace(),))


def result_names_differ(g: Graph) -> Graph:
    return g.replace(result_names=("a", "b"))


def name_without_node(g: Graph) -> Graph:
    return g.replace(names={"x": 77}, next_id=78)


BROKEN: list[tuple[Callable[[Graph], Graph], str]] = [
    (used_before_defined, "which is not before it"),
    (waits_for_later, "waits for"),
    (defined_twice, "defined twice"),
    (id_out_of_range, "outside"),
    (wrong_type, "its rule gives"),
    (ill_typed, "ill typed"),
    (foreign_attributes, "attributes"),
    (param_among_nodes, "param among the nodes"),
    (node_among_params, "not a param node"),
    (dangling_result, "is not a node of the graph"),
    (result_names_differ, "differ in number"),
    (name_without_node, "not a node"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=lambda v: getattr(v, "__name__", ""))
def test_structure(change: Callable[[Graph], Graph], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify.verify(change(chain()))


def test_a_broken_region_is_found() -> None:
    final = pipeline.run(chain(), Config(threads=1))[-1].value
    assert isinstance(final, Program)
    fused = final.graphs[0].nodes[0]
    region = fused.regions[0]
    bad = fused.replace(regions=(used_before_defined_region(region),))
    broken = final.graphs[0].replace(nodes=[bad], results=(bad,))
    with pytest.raises(VerifyError, match="not before it"):
        verify.verify(broken)


def used_before_defined_region(region: Graph) -> Graph:
    return region.replace(nodes=list(reversed(region.nodes)))


def test_good_graphs_pass() -> None:
    seen = verify.verify(chain())
    assert len(seen) == 3
    assert verify.verify(chain(), seen)


# ------------------------------------------------------------------------------------ predicates


def test_no_duplicates() -> None:
    g = graph("%2 = add(%0, %1) : f32[4]\n%3 = add(%1, %0) : f32[4]\n%4 = mul(%2, %3) : f32[4]")
    with pytest.raises(VerifyError, match="duplicates"):
        verify.no_duplicates(g)


def test_no_composites() -> None:
    g = graph("%2 = softmax(%0) {axis=0} : f32[4]")
    with pytest.raises(VerifyError, match="composite"):
        verify.no_composites(g)


def test_every_node_placed() -> None:
    with pytest.raises(VerifyError, match="no device"):
        verify.every_node_placed(chain())


def test_one_device_per_graph() -> None:
    g = chain()
    nodes = [n.replace(place=CPU, inputs=n.inputs) for n in g.nodes[:1]]
    with pytest.raises(VerifyError, match="is not on"):
        verify.one_device_per_graph(g.replace(nodes=nodes, results=(nodes[0],)))


def test_only_kernels() -> None:
    with pytest.raises(VerifyError, match="in no kernel"):
        verify.only_kernels(chain())


@pytest.mark.parametrize("kind", ["contract", "library", "nest"])
def test_a_fused_node_is_what_it_is_called(kind: str) -> None:
    records = pipeline.run(chain(), Config(threads=1))
    fused = next(r.value for r in records if r.name == "fuse")
    assert isinstance(fused, Program)
    node = fused.graphs[0].nodes[0]
    assert node.op.name == "fused"
    wrong = node.replace(attrs=node.op.coerce({"kind": kind}))
    with pytest.raises(VerifyError, match=f"of kind {kind}"):
        spec_of(wrong, Config(threads=1))


def buffered(*regions: tuple[int, int]) -> Graph:
    """x -> a -> b, all in the arena at these (offset, bytes)."""
    b = Builder(1)
    op = OPS["param"]
    kind = tensor(OPS["param"].coerce({"name": "x"}) and chain().params[0].type.dtype, (4,))
    x = Node(0, op, (), op.coerce({"name": "x"}), kind, place=place(("p0", 0, 16)))
    first = b.emit(OPS["neg"], (x,), place=place(("arena", *regions[0])))
    second = b.emit(OPS["neg"], (first,), place=place(("arena", *regions[1])))
    third = b.emit(OPS["add"], (first, second), place=place(("r0", 0, 16)))
    return Graph("g", (x,), [first, second, third], (third,))


def place(region: tuple[str, int, int]) -> Buffer:
    return Buffer(CPU, (Region(*region),))


def test_every_buffer_assigned() -> None:
    verify.every_buffer_assigned(buffered((0, 16), (16, 16)))
    with pytest.raises(VerifyError, match="needs 16 bytes"):
        verify.every_buffer_assigned(buffered((0, 16), (16, 8)))
    with pytest.raises(VerifyError, match="no buffer"):
        verify.every_buffer_assigned(chain())


def test_the_pipeline_names_the_pass_that_broke_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(g: Graph) -> Graph:
        last = g.nodes[-1]
        twin = last.replace(id=g.next_id)
        return g.replace(nodes=[*g.nodes, twin], next_id=g.next_id + 1)

    def schedule(graph: Graph, config: Config) -> Graph:
        return twice(graph)

    broken = Stage(schedule)
    stages = tuple(broken if s.name == "schedule" else s for s in pipeline.STAGES)
    monkeypatch.setattr(pipeline, "STAGES", stages)
    with pytest.raises(VerifyError, match=r"after schedule: .* duplicates"):
        pipeline.run(chain(), Config(verify=2, threads=1))


def test_a_tuple_that_nobody_reads_reads_no_stack() -> None:
    """Rewriting leaves it behind where its items are what it was made of."""
    text = """%2 = stack() {type=f32[4]} : stack<f32[4]>
              %3 = tuple(%2, %0) : (stack<f32[4]>, f32[4])
              %4 = push(%2, %0) : stack<f32[4]>
              %5 = pop(%4) : (stack<f32[4]>, f32[4])
              %6 = item(%5) {index=1} : f32[4]"""
    verify.verify(graph(text))
    taken = text.replace("%4 = push(%2, %0)", "%7 = item(%3) {index=1} : f32[4]\n%4 = push(%2, %7)")
    with pytest.raises(VerifyError, match="read twice"):
        verify.verify(graph(taken))
