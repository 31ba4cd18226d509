"""Trees of every shape and test beside a walk of one row down one tree."""

from __future__ import annotations

import operator
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the onnx package reads ONNX files")

from effort import rounds

import graphc as gc
from graphc.errors import GraphError, LimitError
from graphc.formats.onnx.operators import trees

FEATURES = 5
COMPARE = {
    "BRANCH_LEQ": operator.le,
    "BRANCH_LT": operator.lt,
    "BRANCH_GTE": operator.ge,
    "BRANCH_GT": operator.gt,
    "BRANCH_EQ": operator.eq,
    "BRANCH_NEQ": operator.ne,
}
KINDS = (
    *(("BRANCH_LEQ",), ("BRANCH_LT",), ("BRANCH_GT",), ("BRANCH_GTE", "BRANCH_LT")),
    *(("BRANCH_LEQ", "BRANCH_GT"), ("BRANCH_EQ",), tuple(COMPARE)),
)
LEAST = float(np.finfo(np.float32).min)
EDGES = (-1.0, -0.5, 0.0, 0.25, 1.0, 1e-40, np.inf, LEAST)


def drawn(random: Random, kinds: tuple[str, ...], tracks: tuple[int, ...]) -> dict[str, Any]:
    """An ensemble of lists; nodes of a tree stand in any order and are called anything."""
    rows: list[dict[str, Any]] = []
    for tree in range(random.randint(1, 5)):
        names = random.sample(range(900), 300)
        waiting, depth = [(names.pop(), 0)], random.randint(0, 9)
        own = []
        while waiting:
            name, level = waiting.pop()
            row = {"treeids": tree, "nodeids": name, "modes": "LEAF", "featureids": 0}
            row |= {"values": 0.0, "truenodeids": 0, "falsenodeids": 0, "tracks": 0}
            if level < depth and len(names) > 2 and (random.random() < 0.8 or not level):
                yes, no = names.pop(), names.pop()
                waiting += [(yes, level + 1), (no, level + 1)]
                row |= {"modes": random.choice(kinds), "featureids": random.randrange(FEATURES)}
                row |= {"values": random.choice(EDGES), "truenodeids": yes, "falsenodeids": no}
                row["tracks"] = random.choice(tracks)
            own.append(row)
        rows += [own[0], *random.sample(own[1:], len(own) - 1)]
    made = {f"nodes_{key}": [row[key] for row in rows] for key in rows[0] if key != "tracks"}
    made["nodes_missing_value_tracks_true"] = [row["tracks"] for row in rows]
    ends = [row for row in rows if row["modes"] == "LEAF"]
    made |= {f"target_{key}": [row[key] for row in ends] for key in ("treeids", "nodeids")}
    made["target_ids"] = [random.randrange(2) for _ in ends]
    return {**made, "target_weights": [random.uniform(-1, 1) for _ in ends], "n_targets": 2}


def walked(given: dict[str, Any], x: Any) -> Any:
    """One row down one tree, and another."""
    keys = ("modes", "featureids", "values", "truenodeids", "falsenodeids")
    columns = [given[f"nodes_{key}"] for key in keys] + [given["nodes_missing_value_tracks_true"]]
    places = list(zip(given["nodes_treeids"], given["nodes_nodeids"]))
    nodes = dict(zip(places, zip(*columns)))
    roots: dict[int, int] = {}
    for tree, node in places:
        roots.setdefault(tree, node)
    adds: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for tree, node, target, weight in zip(
        *(given[f"target_{key}"] for key in ("treeids", "nodeids", "ids", "weights"))
    ):
        adds.setdefault((tree, node), []).append((target, weight))
    made = np.zeros((len(x), 2))
    for k, row in enumerate(x):
        for tree, node in roots.items():
            while nodes[tree, node][0] != "LEAF":
                mode, feature, edge, yes, no, tracks = nodes[tree, node]
                value = row[feature]
                goes = COMPARE[mode](value, x.dtype.type(edge)) or (tracks and np.isnan(value))
                node = yes if goes else no
            for target, weight in adds[tree, node]:
                made[k, target] += weight
    return made


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
@pytest.mark.parametrize("tracks", [(0,), (0, 1), (1,)], ids=str)
def test_random_trees(kinds: tuple[str, ...], tracks: tuple[int, ...]) -> None:
    random = Random(len(kinds) + len(tracks))
    for turn in range(rounds(2)):
        given = drawn(random, kinds, tracks)
        kind = (np.float32, np.float64)[turn % 2]
        x = np.array(random.choices([*EDGES, np.nan, -np.inf, 0.1, -2], k=7 * FEATURES), kind)
        x = x.reshape(7, FEATURES)
        told = dict(given)
        if turn % 2:
            told["nodes_values_as_tensor"] = np.array(told.pop("nodes_values"), kind)
        model = gc.compile(
            lambda x, told=told: trees.tree_regressor(x, **told), sizes={"x": ("n", 5)}
        )
        for rows in (7, 1):
            np.testing.assert_allclose(
                model(x[:rows]), walked(given, x[:rows]), rtol=1e-5, atol=1e-5
            )


def test_trees_that_give_to_one_target_each() -> None:
    """So do boosted trees for several classes: their weights are held in one column."""
    random = Random(5)
    for turn in range(rounds(3)):
        given = drawn(random, KINDS[6] if turn == 2 else KINDS[0], (0, 1))
        owners = given["target_treeids"]
        given["target_ids"] = [tree % 2 for tree in owners]
        held = trees._trees(given, "target", 2, np.float32, sums=True)
        assert (held.weights.shape[1] == 1) is (1 in owners)
        x = np.array(random.choices([*EDGES, np.nan, 0.1], k=7 * FEATURES), np.float32)
        x = x.reshape(7, FEATURES)
        made = gc.compile(lambda x, given=given: trees.tree_regressor(x, **given))(x)
        np.testing.assert_allclose(made, walked(given, x), rtol=1e-5, atol=1e-5)


def test_leaves_and_branches_that_are_not_there_are_refused() -> None:
    given = drawn(Random(3), KINDS[0], (0,))
    inner = next(k for k, mode in enumerate(given["nodes_modes"]) if mode != "LEAF")
    for key, place, value in (
        ("nodes_truenodeids", inner, 10_000),
        ("target_nodeids", 0, -1),
        ("target_treeids", 0, 77),
        ("nodes_nodeids", 0, 2**62),
        ("target_ids", 0, 2),
        ("nodes_modes", inner, "BRANCH"),
    ):
        wrong = {**given, key: [*given[key][:place], value, *given[key][place + 1 :]]}
        with pytest.raises(GraphError):
            gc.compile(lambda x, wrong=wrong: trees.tree_regressor(x, **wrong))(
                np.zeros((2, FEATURES), np.float32)
            )


def test_thresholds_are_recognised() -> None:
    """Trees of scikit-learn, XGBoost and LightGBM have tables of their own; others are walked by
    their lists."""
    for kinds, known in ((KINDS[0], True), (KINDS[4], True), (KINDS[6], False)):
        given = drawn(Random(3), kinds, (0, 1)) | {"nodes_hitrates": ()}
        forest = trees._trees(given, "target", 2, np.float32, sums=True)
        assert (trees._thresholds(forest) is not None) is known


def test_a_node_of_two_parents_is_no_tree_but_is_walked() -> None:
    given = {
        "nodes_falseleafs": [1, 1],
        "nodes_truenodeids": [1, 0],
        "nodes_falsenodeids": [0, 1],
        "nodes_trueleafs": [0, 1],
        "nodes_featureids": [0, 1],
        "nodes_modes": np.array([0, 0], np.uint8),
        "nodes_splits": np.array([0.5, 0.5], np.float32),
        "leaf_targetids": [0, 0],
        "leaf_weights": np.array([1.0, 2.0], np.float32),
        "tree_roots": [0],
    }
    x = np.array([[0, 0], [0, 1], [1, 0]], np.float32)
    made = gc.compile(lambda x: trees.tree_ensemble(x, **given))(x)
    np.testing.assert_array_equal(made[:, 0], [1, 2, 1])


def test_a_feature_that_is_not_there_is_refused() -> None:
    given = drawn(Random(5), ("BRANCH_LEQ",), (0,))
    with pytest.raises(GraphError):
        gc.compile(lambda x: trees.tree_regressor(x, **given))(np.zeros((2, 1), np.float32))


def test_links_that_need_64_bits() -> None:
    """Many nodes and far columns: edges of 32 bits are held in 64 then, and are the same."""
    random = Random(7)
    given = drawn(random, KINDS[0], (0, 1))
    while len(given["nodes_treeids"]) < 200:
        given = drawn(random, KINDS[0], (0, 1))
    given["nodes_featureids"] = [k << 20 for k in given["nodes_featureids"]]
    x = np.zeros((3, (FEATURES - 1 << 20) + 1), np.float32)
    x[:, :: 1 << 20] = np.array(random.choices([*EDGES, np.nan], k=3 * FEATURES)).reshape(3, -1)
    made = gc.compile(lambda x: trees.tree_regressor(x, **given))(x)
    np.testing.assert_allclose(made, walked(given, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["values", "featureids", "truenodeids", "falsenodeids", "modes"])
def test_lists_of_other_lengths_are_refused(name: str) -> None:
    """A list of one entry counted for all nodes."""
    given = drawn(Random(5), ("BRANCH_LEQ",), (0,))
    assert len(given["nodes_values"]) > 1
    given[f"nodes_{name}"] = given[f"nodes_{name}"][:1]
    with pytest.raises(GraphError, match=f"nodes_{name} has 1 entries"):
        gc.compile(lambda x: trees.tree_regressor(x, **given))(np.zeros((2, FEATURES), np.float32))


def test_weights_of_many_targets_are_limited() -> None:
    """A short file may ask for any amount of memory."""
    with pytest.raises(LimitError, match="weights of 60000 nodes have 2400000000 bytes"):
        trees._no_weights(60_000, 10_000, np.float32)
    assert trees._no_weights(3, 2, np.float64).shape == (3, 2)


@pytest.mark.parametrize("target", [-1, 2])
def test_targets_that_are_not_there_are_refused(target: int) -> None:
    given = {
        "nodes_falseleafs": [1],
        "nodes_truenodeids": [0],
        "nodes_falsenodeids": [1],
        "nodes_trueleafs": [1],
        "nodes_featureids": [0],
        "nodes_modes": np.array([0], np.uint8),
        "nodes_splits": np.array([0.5], np.float32),
        "leaf_targetids": [0, target],
        "leaf_weights": np.array([1.0, 2.0], np.float32),
        "tree_roots": [0],
        "n_targets": 2,
    }
    with pytest.raises(GraphError, match="there are 2 targets"):
        gc.compile(lambda x: trees.tree_ensemble(x, **given))(np.zeros((2, 1), np.float32))
