"""ai.onnx.ml: trees of scikit-learn, XGBoost and LightGBM.

Trees are walked all at once: every row stands at one node of each tree and goes one level down at
a time.  Trees that ask for thresholds alone are written into one table first, level by level, so
that what one level reads lies together, and a node and its edge in one line of a cache:

    nodes[n] = first << bits | feature, the bits of edge      children of a node lie side by side

(one word of 64 bits, which one load reads, where both fit in its halves; else two words)

    next = first          if x[row, feature] <= edge
           first + 1      else, and where either is NaN: the edge of a leaf, whose `first + 1` is
                          the leaf itself

A NaN that has to go to the first child is read as -inf, or goes there by a bit of the link if
others do not.  The deepest trees stand first: where shallow ones have ended, fewer take a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.formats.deciding_values import refuse
from graphc.formats.onnx.operators.machine_learning import Labels, classified, transformed
from graphc.formats.onnx.table import ML, operator
from graphc.limits import check_within
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]

_TESTS = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_EQUAL = _TESTS.index("BRANCH_EQ")  # tests before it are thresholds
_MEMBER = len(_TESTS)
MOST_LEVELS = 256


class _Trees:
    """All trees of an ensemble in one table of nodes.

    feature, test, edge, yes, no   of each node; a leaf goes to itself
    weights                        what a leaf adds to each target: [nodes, targets]
    targets                        of each tree where none gives to several: weights is [nodes, 1]
    members                        of each node, the numbers it looks for, filled up with NaN
    """

    def __init__(
        self,
        feature: Array,
        test: Array,
        edge: Array,
        yes: Array,
        no: Array,
        missing: Array,
        roots: Array,
        weights: Array,
        targets: Array | None = None,
        members: Array | None = None,
    ) -> None:
        self.feature, self.test, self.edge = feature, test, edge
        self.yes, self.no, self.missing, self.roots = yes, no, missing, roots
        self.weights, self.targets, self.members = weights, targets, members
        own = np.arange(len(yes))
        self.leaf = (yes == own) & (no == own)

    def _depth(self) -> int:
        level, depth = self.roots, 0
        while not self.leaf[level].all():
            depth += 1
            refuse(depth <= MOST_LEVELS, f"trees deeper than {MOST_LEVELS} levels")
            reached = np.zeros(len(self.leaf), bool)
            reached[self.yes[level]] = reached[self.no[level]] = True
            level = np.flatnonzero(reached)
        return depth

    def leaves(self, x: Any) -> Any:
        """The leaf that each row ends in, per tree: [rows, trees]."""
        rows = x.shape[0]
        at = f.broadcast_to(self.roots[None], (rows, len(self.roots)))
        for _ in range(self._depth()):
            value = f.take_along_axis(x, f.take(self.feature, at, axis=0), 1)
            goes = self._goes(value, at)
            if self.missing.any():
                track = f.take(self.missing, at, axis=0)
                goes = f.logical_or(goes, f.logical_and(f.isnan(value), track))
            yes, no = f.take(self.yes, at, axis=0), f.take(self.no, at, axis=0)
            at = f.where(goes, yes, no)
        return at

    def _goes(self, value: Any, at: Any) -> Any:
        edge = f.take(self.edge, at, axis=0)
        compare = {
            0: f.less_equal,
            1: f.less,
            2: f.greater_equal,
            3: f.greater,
            4: f.equal,
            5: f.not_equal,
        }
        kinds = np.unique(self.test)
        made: Any = None
        for kind in kinds:
            if kind == _MEMBER:
                one = self._is_member(value, at)
            else:
                one = compare[int(kind)](value, edge)
            own = f.equal(f.take(self.test, at, axis=0), kind)
            made = one if made is None else f.where(own, one, made)
        return made

    def _is_member(self, value: Any, at: Any) -> Any:
        sets = f.take(self.members, at, axis=0)
        return f.any(f.equal(f.expand_dims(value, -1), sets), axis=-1)

    def scores(self, x: Any, aggregate: str) -> Any:
        """What the leaves give each target: [rows, targets]."""
        refuse(x.ndim == 2, f"x of rank {x.ndim}: rows of features have rank 2")
        found = _thresholds(self) if isinstance(x.shape[1], int) else None
        targets = self.targets
        if found is None:
            given = f.take(self.weights, self.leaves(x), axis=0)
        else:
            last = int(found.feature.max(initial=0))
            refuse(0 <= int(found.feature.min(initial=0)) <= last < x.shape[1], "no such feature")
            leaves = found.leaves(x)
            given = f.take(self.weights[found.order], leaves, axis=0, mode="clip")
            targets = targets if targets is None else targets[found.deepest]
        if targets is not None:
            refuse(aggregate == "SUM", f"no aggregate {aggregate!r} of trees for one target each")
            gives = targets[:, None] == np.arange(int(targets.max(initial=0)) + 1)
            return f.matmul(f.getitem(given, (..., 0)), gives.astype(self.weights.dtype))
        reduce = {"SUM": f.sum, "AVERAGE": f.mean, "MIN": f.min, "MAX": f.max}
        refuse(aggregate in reduce, f"no aggregate {aggregate!r}")
        return reduce[aggregate](given, axis=1)


@record(frozen=True)
class _Thresholds:
    """Trees that ask for thresholds alone, as the table above.

    order    the old number of each node
    lowers   whether the node reads x with -inf in the place of NaN
    depths   of the trees, the deepest first
    deepest  the old number of each tree
    """

    edge: Array
    first: Array
    feature: Array
    lowers: Array
    order: Array
    depths: Array
    deepest: Array

    def leaves(self, x: Any) -> Any:
        """The place in `order` of the leaf that each row ends in, per tree: [rows, trees]."""
        lowers = self.lowers
        mixed = bool(lowers.any()) and not lowers[~np.isnan(self.edge)].all()
        if lowers.any() and not mixed:
            x = f.where(f.isnan(x), np.asarray(-np.inf, self.edge.dtype), x)
        below = int(self.feature.max()).bit_length()
        bits = below + mixed
        wide = len(self.edge).bit_length() + bits > 31
        held = self.first << bits | self.feature | (lowers.astype(np.int64) << below) * mixed
        packed = not wide and self.edge.dtype == np.float32
        whole, real = (np.int32, np.float32) if packed else (np.int64, np.float64)
        nodes = held << 32 | self.edge.view(np.uint32) if packed else self._pairs(held)
        trees = len(self.depths)
        at = np.broadcast_to(np.arange(trees, dtype=whole), (1, trees))
        if not self.depths[0]:
            return f.broadcast_to(at, (x.shape[0], trees))
        value = f.take(x, self.feature[:trees], axis=1, mode="clip")  # all begin at the roots
        ended = []
        for level in range(self.depths[0]):
            if level and (going := self._going(level)) < at.shape[1]:
                ended.append(at[:, going:])
                at = at[:, :going]
            node = f.take(nodes, at, axis=0, mode="clip")
            if packed:
                here = f.astype(f.right_shift(node, np.int64(32)), whole)
                edge = f.view(f.astype(node, whole), real)
            else:
                here = f.getitem(node, (..., 0))
                edge = f.view(f.getitem(node, (..., 1)), real)
            if level:
                own = f.bitwise_and(here, whole((1 << below) - 1))
                value = f.take_along_axis(x, own, 1, mode="clip")
            stays = f.less_equal(value, edge)
            if mixed:
                lowered = f.not_equal(f.bitwise_and(here, whole(1 << below)), 0)
                stays = f.logical_or(stays, f.logical_and(f.isnan(value), lowered))
            first = f.right_shift(here, whole(bits))
            at = f.add(first, f.astype(f.logical_not(stays), whole))
        return f.concatenate([at, *reversed(ended)], 1) if ended else at

    def _pairs(self, links: Array) -> Array:
        """Nodes as two words each: the link and the bits of the edge."""
        return np.stack([links, self.edge.astype(np.float64).view(np.int64)], 1)

    def _going(self, level: int) -> int:
        """How many trees take the step from a level: those that are deeper, in quarters of all,
        as every other number of them is another kernel."""
        trees, deeper = len(self.depths), int(np.count_nonzero(self.depths > level))
        quarter = -(-trees // 4)
        return min(-(-deeper // quarter) * quarter, trees)


def _thresholds(trees: _Trees) -> _Thresholds | None:
    """The tables of trees each node of which has one parent and a threshold; else None."""
    leaf, edge = trees.leaf, trees.edge
    if not (leaf | ((trees.test < _EQUAL) & (edge > -np.inf))).all():
        return None
    above = (trees.test == _TESTS.index("BRANCH_GTE")) | (trees.test == _TESTS.index("BRANCH_GT"))
    exact = (trees.test == _TESTS.index("BRANCH_LEQ")) | (trees.test == _TESTS.index("BRANCH_GT"))
    depths = _depths(trees, leaf)
    if depths is None:
        return None  # a node with several parents
    deep = int(depths.max(initial=0))
    refuse(deep <= MOST_LEVELS, f"trees deeper than {MOST_LEVELS} levels")
    deepest = np.argsort(-depths, kind="stable")
    levels = [trees.roots[deepest]]
    while len(inner := levels[-1][~leaf[levels[-1]]]):
        turned = above[inner]
        children = np.where(
            turned, (trees.no[inner], trees.yes[inner]), (trees.yes[inner], trees.no[inner])
        )
        levels.append(children.T.reshape(-1))
    order = np.concatenate(levels)
    ends = leaf[order]
    first = np.arange(len(order)) - 1
    first[~ends] = len(depths) + 2 * np.arange(np.count_nonzero(~ends))
    with np.errstate(over="ignore", under="ignore"):
        below = np.where(exact, edge, np.nextafter(edge, np.asarray(-np.inf, edge.dtype)))
    return _Thresholds(
        np.where(ends, np.asarray(np.nan, edge.dtype), below[order]),
        first,
        np.where(ends, 0, trees.feature[order]),
        (trees.missing ^ above)[order] & ~ends,
        order,
        depths[deepest],
        deepest,
    )


def _depths(trees: _Trees, leaf: Array) -> Array | None:
    """How deep each tree is; None where a node is met twice."""
    depths = np.zeros(len(trees.roots), np.int64)
    level, owner, met = trees.roots, np.arange(len(trees.roots)), len(trees.roots)
    while (inner := ~leaf[level]).any():
        depths[owner[inner]] += 1
        owner = np.concatenate([owner[inner]] * 2)
        level = np.concatenate([trees.yes[level[inner]], trees.no[level[inner]]])
        met += len(level)
        if met > len(leaf):
            return None
    return depths


class _Places:
    """Where the nodes of the older operators' lists stand, found by the numbers of tree and node.

    Of nodes with the same numbers the last counts.
    """

    def __init__(self, trees: Any, nodes: Any) -> None:
        trees, nodes = np.asarray(trees, np.int64), np.asarray(nodes, np.int64)
        refuse(len(trees) == len(nodes) > 0, f"{len(trees)} and {len(nodes)} numbers of nodes")
        self.names, first = np.unique(trees, return_index=True)
        self.roots = np.sort(first)
        self.low = int(nodes.min(initial=0))
        self.span = int(nodes.max(initial=0)) - self.low + 1
        refuse(self.span * len(self.names) < 1 << 62, "numbers of nodes that are too large")
        keys = self._keys(trees, nodes)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]

    def tree(self, trees: Any) -> Array:
        """The places of trees in `names`."""
        return np.searchsorted(self.names, np.asarray(trees, np.int64))

    def _keys(self, trees: Any, nodes: Any) -> Array:
        return self.tree(trees) * self.span + (np.asarray(nodes, np.int64) - self.low)

    def of(self, trees: Any, nodes: Any) -> Array:
        """The places of nodes. Raises GraphError where there is no such node."""
        trees, nodes = np.asarray(trees, np.int64), np.asarray(nodes, np.int64)
        refuse(len(trees) == len(nodes), f"{len(trees)} and {len(nodes)} numbers of nodes")
        known = self.names[np.minimum(self.tree(trees), len(self.names) - 1)] == trees
        known &= (nodes >= self.low) & (nodes - self.low < self.span)
        keys = np.where(known, self._keys(trees, nodes), -1)
        found = np.searchsorted(self.keys, keys, side="right") - 1
        lost = np.flatnonzero(self.keys[found] != keys)
        if len(lost):
            raise GraphError(f"tree {trees[lost[0]]} has no node {nodes[lost[0]]}")
        return self.order[found]


def _trees(attributes: dict[str, Any], prefix: str, count: int, kind: Any, sums: bool) -> _Trees:
    """Trees from the lists of the older operators, one entry per node."""
    places = _Places(attributes["nodes_treeids"], attributes["nodes_nodeids"])
    trees = np.asarray(attributes["nodes_treeids"], np.int64)
    number = {"LEAF": -1, **{name: k for k, name in enumerate(_TESTS)}}
    modes = attributes["nodes_modes"]
    for name in ("modes", "values", "featureids", "truenodeids", "falsenodeids"):
        found = len(attributes[f"nodes_{name}"])
        refuse(found == len(trees), f"{len(trees)} nodes, nodes_{name} has {found} entries")
    unknown = set(modes) - number.keys()
    refuse(not unknown, f"no test {min(unknown, default='')!r}")
    test = np.fromiter(map(number.__getitem__, modes), np.int64, len(modes))
    inner = np.flatnonzero(test >= 0)
    yes, no = np.arange(len(trees)), np.arange(len(trees))
    for ends, side in ((yes, "true"), (no, "false")):
        to = np.asarray(attributes[f"nodes_{side}nodeids"], np.int64)[inner]
        ends[inner] = places.of(trees[inner], to)
    missing = np.zeros(len(trees), bool)
    given = attributes["nodes_missing_value_tracks_true"]
    missing[: len(given)] = np.asarray(given, bool)
    weights, targets = _weights(places, attributes, prefix, count, kind, sums)
    return _Trees(
        np.asarray(attributes["nodes_featureids"], np.int64),
        np.maximum(test, 0),
        np.asarray(attributes["nodes_values"], kind),
        yes,
        no,
        missing,
        places.roots,
        weights,
        targets,
    )


def _weights(
    places: _Places, attributes: dict[str, Any], prefix: str, count: int, kind: Any, sums: bool
) -> tuple[Array, Array | None]:
    """What the nodes give to the targets, and the target of each tree where each has one.

    Boosted trees for several classes give to one each: a column instead of one for each class.
    """
    trees = np.asarray(attributes["nodes_treeids"], np.int64)
    owners = places.tree(attributes[f"{prefix}_treeids"])
    nodes = places.of(attributes[f"{prefix}_treeids"], attributes[f"{prefix}_nodeids"])
    ids = np.asarray(attributes[f"{prefix}_ids"], np.int64)
    values = np.asarray(attributes[f"{prefix}_weights"], kind)
    refuse(len(nodes) == len(ids) == len(values), f"the lists of {prefix} weights differ in length")
    last = int(ids.max(initial=0))
    refuse(0 <= int(ids.min(initial=0)) <= last < count, f"there are {count} targets")
    targets = np.zeros(len(places.names), np.int64)
    targets[owners] = ids
    alone = count == last + 1 > 1 and (targets[owners] == ids).all()
    if sums and alone and np.isfinite(values).all():
        weights = np.zeros((len(places.order), 1), kind)
        np.add.at(weights[:, 0], nodes, values)
        return weights, targets[places.tree(trees[places.roots])]
    weights = _no_weights(len(places.order), count, kind)
    np.add.at(weights, (nodes, ids), values)
    return weights, None


def _no_weights(nodes: int, targets: int, kind: Any) -> Array:
    """Zeros for each node and target. Raises LimitError for more than a model may take."""
    size = nodes * targets * np.dtype(kind).itemsize
    check_within("model_bytes", size, f"the weights of {nodes} nodes have {size} bytes")
    return np.zeros((nodes, targets), kind)


def _listed(given: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Values from the tensors that stand for them in f64 models."""
    made = {name: value for name, value in given.items() if not name.endswith("_as_tensor")}
    for name, value in given.items():
        if name.endswith("_as_tensor") and value is not None:
            made[name.removesuffix("_as_tensor")] = np.asarray(value).reshape(-1)
    return made


def _kind(values: Any) -> Any:
    return np.float64 if values is not None else np.float32


@operator("TreeEnsembleRegressor", domain=ML)
def tree_regressor(
    x: Any,
    *,
    aggregate_function: str = "SUM",
    base_values: Any = (),
    base_values_as_tensor: Any = None,
    n_targets: int = 1,
    nodes_falsenodeids: Any,
    nodes_featureids: Any,
    nodes_hitrates: Any = (),
    nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: Any = (),
    nodes_modes: Any,
    nodes_nodeids: Any,
    nodes_treeids: Any,
    nodes_truenodeids: Any,
    nodes_values: Any = (),
    nodes_values_as_tensor: Any = None,
    post_transform: str = "NONE",
    target_ids: Any,
    target_nodeids: Any,
    target_treeids: Any,
    target_weights: Any = (),
    target_weights_as_tensor: Any = None,
) -> Any:
    kind = _kind(nodes_values_as_tensor)
    given = _listed({k: v for k, v in locals().items() if k not in ("x", "kind")}, kind)
    refuse(1 <= n_targets <= 10_000, f"{n_targets} targets")
    forest = _trees(given, "target", n_targets, kind, aggregate_function == "SUM")
    made = forest.scores(f.astype(x, kind), aggregate_function)
    if len(given["base_values"]):
        made = f.add(made, np.asarray(given["base_values"], kind))
    return transformed(f.astype(made, np.float32), post_transform)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_classifier(
    x: Any,
    *,
    base_values: Any = (),
    base_values_as_tensor: Any = None,
    class_ids: Any,
    class_nodeids: Any,
    class_treeids: Any,
    class_weights: Any = (),
    class_weights_as_tensor: Any = None,
    classlabels_int64s: Any = (),
    classlabels_strings: Any = (),
    nodes_falsenodeids: Any,
    nodes_featureids: Any,
    nodes_hitrates: Any = (),
    nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: Any = (),
    nodes_modes: Any,
    nodes_nodeids: Any,
    nodes_treeids: Any,
    nodes_truenodeids: Any,
    nodes_values: Any = (),
    nodes_values_as_tensor: Any = None,
    post_transform: str = "NONE",
) -> Any:
    kind = _kind(nodes_values_as_tensor)
    given = _listed({k: v for k, v in locals().items() if k not in ("x", "kind")}, kind)
    labels = Labels(classlabels_int64s, classlabels_strings)
    count = max(int(max(class_ids)) + 1, 1)
    binary = len(labels) == 2 and len(set(class_ids)) == 1
    columns = 1 if binary else max(count, len(labels))
    refuse(columns <= 10_000, f"{columns} classes")
    if binary:
        given["class_ids"] = np.zeros(len(class_ids), np.int64)
    forest = _trees(given, "class", columns, kind, sums=True)
    made = forest.scores(f.astype(x, kind), "SUM")
    if len(given["base_values"]):
        base = np.asarray(given["base_values"], kind)
        made = f.add(made, base[-1:] if binary else base)
    scores = f.astype(made, np.float32)
    if not binary:
        return classified(scores, labels, post_transform)
    return _binary_trees(scores, labels, post_transform, given["class_weights"])


def _binary_trees(scores: Any, labels: Labels, post: str, weights: Sequence[float]) -> Any:
    """Two classes by one score: a probability where no weight is negative, else a margin."""
    one = transformed(scores, post)
    is_probability = min(map(float, weights), default=0.0) >= 0
    edge = 0.5 if is_probability else 0.0
    second = f.greater(f.getitem(scores, (slice(None), 0)), np.float32(edge))
    minus = post in ("LOGISTIC", "PROBIT") or (post == "NONE" and is_probability)
    other = f.subtract(1, one) if minus else f.negative(one)
    return labels.second(second), f.concatenate([other, one], 1)


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(
    x: Any,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Any,
    leaf_weights: Any,
    membership_values: Any = None,
    n_targets: int = 1,
    nodes_falseleafs: Any,
    nodes_falsenodeids: Any,
    nodes_featureids: Any,
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Any = (),
    nodes_modes: Any,
    nodes_splits: Any,
    nodes_trueleafs: Any,
    nodes_truenodeids: Any,
    post_transform: int = 0,
    tree_roots: Any,
) -> Any:
    modes = np.asarray(nodes_modes, np.int64).reshape(-1)
    refuse(int(modes.min(initial=0)) >= 0 and int(modes.max(initial=0)) <= _MEMBER, "no such test")
    inner, outer = len(modes), len(leaf_targetids)
    kind = np.asarray(nodes_splits).dtype
    leaf = np.arange(outer, dtype=np.int64) + inner
    refuse(1 <= n_targets <= 10_000, f"{n_targets} targets")

    def ends(ids: Any, leafs: Any) -> Array:
        to = np.asarray(ids, np.int64) + np.where(np.asarray(leafs, bool), inner, 0)
        refuse(bool(((to >= 0) & (to < inner + outer)).all()), "a branch leads nowhere")
        return np.concatenate([to, leaf])

    def padded(values: Any, like: Any) -> Array:
        made = np.zeros(inner + outer, like)
        made[: len(values)] = values
        return made

    targets = np.asarray(leaf_targetids, np.int64)
    refuse(bool(((targets >= 0) & (targets < n_targets)).all()), f"there are {n_targets} targets")
    weights = _no_weights(inner + outer, n_targets, kind)
    weights[leaf, targets] = np.asarray(leaf_weights).reshape(-1)
    forest = _Trees(
        padded(nodes_featureids, np.int64),
        padded(modes, np.int64),
        padded(np.asarray(nodes_splits).reshape(-1), kind),
        ends(nodes_truenodeids, nodes_trueleafs),
        ends(nodes_falsenodeids, nodes_falseleafs),
        padded(nodes_missing_value_tracks_true, bool),
        np.asarray(tree_roots, np.int64),
        weights,
        members=_members(modes, membership_values, inner + outer, kind),
    )
    names = ("AVERAGE", "SUM", "MIN", "MAX")
    refuse(0 <= aggregate_function < 4 and 0 <= post_transform < 5, "no such aggregate")
    made = forest.scores(f.astype(x, kind), names[aggregate_function])
    posts = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    return transformed(made, posts[post_transform])


def _members(modes: Array, values: Any, count: int, kind: Any) -> Array | None:
    """What each node looks for: the lists stand one after another, a NaN ends each."""
    nodes = np.flatnonzero(modes == _MEMBER)
    if not len(nodes):
        return None
    flat = np.asarray(() if values is None else values, kind).reshape(-1)
    ends = np.flatnonzero(np.isnan(flat))
    refuse(len(ends) == len(nodes), f"{len(ends)} lists of members for {len(nodes)} tests")
    lists = np.split(flat, ends + 1)[:-1]
    most = max(map(len, lists))
    check_within("folded_elements", most * count, "members of sets")
    made = np.full((count, most), np.nan, kind)
    for node, members in zip(nodes, lists):
        made[node, : len(members)] = members
    return made
