"""Programs of several devices with open sizes: one compilation, whose messages are of any size."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_programs import ping_pong
from effort import EFFORT, few
from open_graphs import open_graph
from open_sizes import wrong

import graphc as gc
from graphc.cli import main
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.open_sizes import build_open
from graphc.ir.graph import Graph
from graphc.ir.place import Constraint, parse_spec
from graphc.ir.specialise import specialise
from graphc.ops.reference.interpreter import interpret

TWO = ["cpu:0", "cpu:1"]
THREE = (*TWO, "cpu:2")
SIZES = ((7, 5), (0, 0), (1, 1), (2, 64), (64, 2))
NUMBERS = range(1000) if EFFORT > 1 else few(range(1000), 10)


def placed(graph: Graph, draw: random.Random) -> Graph:
    """The graph with every node on some device."""
    mapped = {param: param for param in graph.params}
    for node in graph.nodes:
        place = Constraint(parse_spec(draw.choice(THREE)))
        mapped[node] = node.replace(inputs=tuple(mapped[n] for n in node.inputs), place=place)
    results = tuple(mapped[r] for r in graph.results)
    return graph.replace(nodes=[mapped[n] for n in graph.nodes], results=results)


def check(number: int) -> tuple[int, int]:
    """Compile one program for all sizes; how many runs were right, and messages of open size."""
    draw = random.Random(number)
    graph = placed(open_graph(number), draw)
    names = {s for p in graph.params for s in p.type.symbols()}  # type: ignore[union-attr]
    example = {s: size for s, size in zip("nm", (20, 33), strict=True) if s in names}
    config = Config.create(devices=THREE, opt=draw.choice([0, 2]), threads=1)
    try:
        built = build_open(graph, config, example)
    except (GraphError, KeyError):
        return 0, 0  # it needs a number, or a size that no array says
    served, rng = 0, np.random.default_rng(1)
    for sizes in SIZES if built.formulas is not None else ():
        try:
            exact = specialise(graph, dict(zip("nm", sizes, strict=True)))
        except GraphError:  # the greatest of nothing
            continue
        shapes = tuple(p.type.dims for p in exact.params)  # type: ignore[union-attr]
        bound = built.bound(shapes)
        if bound is not None:
            arrays = [rng.uniform(-2, 2, shape).astype(np.float32) for shape in shapes]
            with np.errstate(all="ignore"):
                trouble = wrong(bound.executable.run(arrays), interpret(exact, arrays))
            assert not trouble, f"program {number}, {sizes}: {trouble}"
            served += 1
    holes = built.image.holes
    return served, len(holes.channels) if holes is not None else 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_programs_on_random_devices_equal_the_reference() -> None:
    served, messages = map(sum, zip(*map(check, NUMBERS), strict=True))
    assert served > 2 * len(NUMBERS)
    assert messages > len(NUMBERS)


_looping = partial(ping_pong, turns=3)


def _waiting(x: Any) -> Any:
    def body(carry: Any) -> Any:
        k, value = carry
        with gc.device("cpu:1"):
            return k + 1, np.sin(value) + value.sum()

    return gc.while_loop(lambda carry: carry[0] < 3, body, (0, x))[1]


def _scanned(x: Any) -> Any:
    """The open size is the length of the loop."""

    def step(carry: Any, row: Any) -> Any:
        with gc.device("cpu:1"):
            carry = np.tanh(carry + row)
        with gc.device("cpu:0"):
            return carry, carry * 2

    return gc.scan(step, np.zeros(4, np.float32), x)[1]


def _chosen(x: Any) -> Any:
    def there(x: Any) -> Any:
        with gc.device("cpu:1"):
            return x * 2

    return gc.cond(x.sum() > 0, there, lambda x: x - 1, x)


def _differentiated(x: Any) -> Any:
    return gc.grad(lambda x: (_looping(x) ** 2).sum() + (_scanned(x) ** 2).sum())(x)


def _counted(x: Any) -> Any:
    """The data decides how large the message is."""
    with gc.device("cpu:1"):
        return np.sort(x[x > 0.5]) * 2


@pytest.mark.parametrize(
    "function", few([_looping, _waiting, _scanned, _chosen, _differentiated, _counted], 3)
)
@pytest.mark.parametrize("compress", [False, "nearest"])
def test_one_compilation_serves_all_sizes(function: Callable[..., Any], compress: Any) -> None:
    open_ = gc.compile(function, devices=TWO, sizes={"x": ("n", 4)}, compress=compress)
    for rows in (7, 64, 1, 0, 2):
        x = np.linspace(-0.5, 1, rows * 4, dtype=np.float32).reshape(rows, 4)
        exact = gc.compile(function, devices=TWO, sizes="exact")(x)
        made = open_(x)
        bound = 3e-2 * np.abs(exact).max(initial=0) if compress else 1e-5
        np.testing.assert_allclose(made, exact, rtol=1e-5, atol=bound)
    assert len(open_.compiles) == 1


def test_a_file_serves_all_sizes(tmp_path: Path) -> None:
    function = gc.compile(_looping, devices=TWO)
    function.save(tmp_path / "f.gir", gc.spec(("n", 4), "f32"))
    main(["compile", f"{tmp_path}/f.gir", "-o", f"{tmp_path}/f.gcx", "--devices", ",".join(TWO)])
    executable = gc.load(tmp_path / "f.gcx")
    for rows in (7, 64, 1, 0):
        x = np.ones((rows, 4), np.float32)
        np.testing.assert_array_equal(executable(x), function(x))
