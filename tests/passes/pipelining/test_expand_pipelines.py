"""A pipeline is a node until `expand_pipelines`: text, read by anybody, run by the interpreter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import rounds
from piped_losses import WIDTH, random_loss, random_schedule

import graphc as gc
from graphc import parallel
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.trace.tree import flatten
from graphc.ir.parse import parse
from graphc.ir.text import show
from graphc.ops.reference.interpreter import interpret
from graphc.passes.pipeline import STAGES, apply, stage_named

TWO = ["cpu:0", "cpu:1"]
STAGE, CONFIG = STAGES[stage_named("expand_pipelines")], Config.create(devices=TWO)
GOLDEN = Path(__file__).parents[2] / "golden/expand_pipelines/two_stages.gir"
TEXT = GOLDEN.read_text().partition("\n----\n")[0]
rng = np.random.default_rng(0)
ARRAYS = [rng.standard_normal(s).astype(np.float32) for s in ((4, 4), (4, 4), (6, 4))]
WEIGHT = rng.standard_normal((4, 4))
ROWS = rng.standard_normal((6, 4))


def test_it_stands_in_the_first_dump_alone(tmp_path: Path) -> None:
    piped = parallel.pipeline(lambda w, x: np.tanh(x @ w).sum(), TWO, 2)
    gc.compile(piped, devices=TWO, dump=tmp_path)(WEIGHT, ROWS)
    files = sorted(tmp_path.rglob("*.gir"))
    found = [path.name for path in files if " = pipeline(" in path.read_text()]
    assert [name.partition("-")[2] for name in found] == ["trace.gir"]
    names = [path.name.partition("-")[2] for path in files]
    assert "expand_pipelines.gir" in names
    wanted = gc.value_and_grad(lambda w, x: np.tanh(x @ w).sum() / 2)(WEIGHT, ROWS)
    for path in (files[0], files[1]):
        loaded = gc.load(path, devices=TWO)
        made, _ = loaded(params=WEIGHT, batch=ROWS)
        np.testing.assert_allclose(made, wanted[0])


@pytest.mark.parametrize("seed", range(rounds(3)))
def test_interpreted_and_expanded_are_alike(seed: int) -> None:
    """Random functions: the node, what became of it, and both after they were text."""
    draw = np.random.default_rng(seed)
    loss, params = random_loss(draw, TWO if seed % 2 else [])
    rows, chunks = int(draw.integers(1, 8)), int(draw.integers(1, 4))
    batch = draw.standard_normal((rows, WIDTH)), draw.standard_normal((rows, WIDTH))
    chunks = len(parallel.sizes(rows, chunks))
    schedule = "1f1b" if seed % 2 else random_schedule(draw, 2, chunks, 2)
    piped = parallel.pipeline(loss, TWO, chunks, schedule, stages=None if seed % 2 else 2)
    stages = gc.compile(piped, devices=TWO).stages(params, batch)
    flat = flatten((params, batch))[0]
    before = stages[0].value
    after = next(stage.value for stage in stages if stage.name == "expand_pipelines")
    assert "pipeline(" in show(before)
    assert "pipeline(" not in show(after)
    wanted = interpret(before, flat)
    for graph in (after, parse(show(before)), parse(show(after))):
        assert show(parse(show(graph))) == show(graph)
        for made, value in zip(interpret(graph, flat), wanted):
            np.testing.assert_allclose(made, value, rtol=1e-9, atol=1e-10)


def model(weights: Any, x: Any) -> Any:
    for w in weights:
        x = np.tanh(x @ w)
    return x


def test_it_nests() -> None:
    """In what is differentiated, in lanes, in branches, loops and checkpoints, in another one."""
    weights = [WEIGHT, WEIGHT.T]
    forward = parallel.pipeline(model, TWO, 2, combine="concatenate", gradients=False)
    trained = parallel.pipeline(lambda p, b: forward(p, b).sum(), TWO, 2, combine="sum")
    plain = gc.value_and_grad(lambda p, b: model(p, b).sum())
    cases = [
        (lambda f: gc.grad(lambda w: (f(w, ROWS) ** 2).sum())(weights), forward, model),
        (lambda f: gc.vmap(lambda x: f(weights, x))(np.stack([ROWS, -ROWS])), forward, model),
        (lambda f: gc.cond(ROWS.sum() > 0, lambda x: f(weights, x), np.sin, ROWS), forward, model),
        (lambda f: gc.scan(lambda c, x: (f(weights, c), x), ROWS, ROWS)[0], forward, model),
        (lambda f: gc.grad(lambda w: gc.checkpoint(f)(w, ROWS).sum())(weights), forward, model),
        (lambda f: f(weights, ROWS), trained, plain),
    ]
    for number, (use, piped, whole) in enumerate(cases):
        function = gc.compile(lambda use=use, piped=piped: use(piped), devices=TWO)
        wanted = flatten(gc.compile(lambda use=use, whole=whole: use(whole))())[0]
        for made, value in zip(flatten(function())[0], wanted, strict=True):
            np.testing.assert_allclose(made, value, rtol=1e-9, atol=1e-12, err_msg=str(number))
        for made, value in zip(interpret(function.graph(), []), wanted, strict=True):
            np.testing.assert_allclose(made, value, rtol=1e-9, atol=1e-12, err_msg=str(number))


def test_it_keeps_the_order_of_effects() -> None:
    """What it prints and reads comes after what was printed and assigned before it."""
    scale, seen = gc.Variable(np.float64(1), name="piped scale"), []

    def loss(w: Any, x: Any) -> Any:
        gc.callback(lambda s: seen.append(float(s)), None, scale.value)
        return (x @ w).sum() * scale.value

    def step(w: Any, x: Any) -> Any:
        scale.assign(scale.value * 2)
        gc.callback(lambda s: seen.append(-float(s)), None, scale.value)
        value, _ = parallel.pipeline(loss, TWO[:1], 2, combine="sum")(w, x)
        scale.assign(scale.value * 2)
        gc.callback(lambda s: seen.append(-float(s)), None, scale.value)
        return value

    made = gc.compile(step)(WEIGHT, ROWS)
    np.testing.assert_allclose(made, 2 * (ROWS @ WEIGHT).sum())
    assert seen == [-2, 2, 2, -4]


VALUES = re.findall(
    r"\S+",
    r"""0 1 2 -1 65537 9999999999999 1.5 nan inf true false none "" "cpu:0" "cpu:9" "x:y:z"
"a|b" "always" "bytes" [] [0] [1] [2] [0,0] [1,0] [2,0] [0,1] [0,2] [7] [-1] [1,1] [2,2] ["cpu:0"]
["cpu:0","cpu:0"] ["cpu:0","cpu:1","cpu:2"] [""] ["gpu:7"] ["hidden"] ["1f1b"] ["zb-h1"] ["no"]
["custom","|"] ["custom","|","0F0"] ["x","0F0","0B0"] ["a\nb","|","0F0","|"] ["hidden","hidden"]
["custom","|","1F0","1B0","|","0F0","0B0"] ["custom","|","0F0","|","0B0"] ["/task:3/cpu:0"]
["custom","|","0F0","0F1","0B0","0B1","|","1B0","1F0","1B1","1F1"]""",
)


def test_attributes_of_strangers_are_right_or_refused() -> None:
    """Each attribute with each of many values; every text is one that reads and prints."""
    wanted = interpret(parse(TEXT), ARRAYS)
    line = next(line for line in TEXT.splitlines() if "pipeline(" in line)
    names = re.findall(r"(\w+)=", line)
    assert len(names) == 13
    refused = 0
    for name in names:
        (given,) = re.findall(rf"\b({name}=(?:\[.*?\]|[^,}}]*))", line)
        for value in VALUES:
            edited = line.replace(given, f"{name}={value}")
            try:
                made = apply(STAGE, parse(TEXT.replace(line, edited)), CONFIG)
            except GraphError:
                refused += 1
                continue
            for got, expected in zip(interpret(made, ARRAYS), wanted, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-5, err_msg=edited)
    assert refused > 300


def test_operands_and_regions_of_strangers_are_refused() -> None:
    for old, new, problem in [
        ("pipeline(%0, %1, %3, %4, %5, %5)", "pipeline(%0, %1, %3, %4, %5)", "6 operands"),
        ("pipeline(%0, %1, %3, %4, %5, %5)", "pipeline(%0, %1, %3, %2, %5, %5)", "do not match"),
        ("pipeline(%0, %1, %3, %4, %5, %5)", "pipeline(%0, %1, %3, %4, %5, %0)", "cotangent"),
        ("      return %6\n", "      return\n", "differ"),
        ("      return %6\n", "      return %4\n", "cotangent"),
        ('ends=["hidden"]', 'ends=["hidden"' + ',"hidden"' * 255 + "]", "ends"),
        ("shapes=[0,0]", f"shapes=[{','.join('0' * 65_000)}]", "pipelined_nodes"),
    ]:
        assert old in TEXT
        with pytest.raises(GraphError, match=problem):
            parse(TEXT.replace(old, new))
