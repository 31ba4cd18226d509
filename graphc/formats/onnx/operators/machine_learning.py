"""ai.onnx.ml: linear models, trees, scalers and encoders of scikit-learn, XGBoost and LightGBM.

Trees are walked all at once: every row stands at one node of each tree and goes one level down at
a time, a gather and a comparison per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.encoded_values import Maps, Text
from graphc.formats.onnx.table import FIRST, ML, operator
from graphc.limits import check_within
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]


def floats(values: Any) -> Array:
    return np.asarray(values, np.float32)


def matrix(x: Any) -> Any:
    made = f.astype(x, np.float32) if np.dtype(x.dtype).kind != "f" else x
    return f.reshape(made, (1, -1)) if made.ndim == 1 else made


# ------------------------------------------------------------------------------------ preparing


@operator("Scaler", domain=ML)
def scaler(x: Any, *, offset: Any = (), scale: Any = ()) -> Any:
    wide = f.astype(x, np.float32)
    made = f.subtract(wide, floats(offset)) if len(offset) else wide
    return f.multiply(made, floats(scale)) if len(scale) else made


@operator("Normalizer", domain=ML)
def normalizer(x: Any, *, norm: str = "MAX") -> Any:
    wide = f.astype(x, np.float32)
    refuse(norm in ("MAX", "L1", "L2"), f"no norm {norm!r}")
    if norm == "L2":
        total = f.sqrt(f.sum(f.multiply(wide, wide), axis=-1, keepdims=True))
    elif norm == "L1":
        total = f.sum(f.abs(wide), axis=-1, keepdims=True)
    else:
        total = f.max(wide, axis=-1, keepdims=True)
    return f.divide(wide, f.where(f.equal(total, 0), np.float32(1), total))


@operator("Binarizer", domain=ML)
def binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    return f.astype(f.greater(x, np.asarray(threshold, x.dtype)), x.dtype)


@operator("Imputer", domain=ML)
def imputer(
    x: Any,
    *,
    imputed_value_floats: Any = (),
    imputed_value_int64s: Any = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:
    if np.dtype(x.dtype).kind == "f":
        missing = (
            f.isnan(x)
            if np.isnan(replaced_value_float)
            else f.equal(x, np.asarray(replaced_value_float, x.dtype))
        )
        return f.where(missing, np.asarray(imputed_value_floats, x.dtype), x)
    missing = f.equal(x, np.asarray(replaced_value_int64, x.dtype))
    return f.where(missing, np.asarray(imputed_value_int64s, x.dtype), x)


@operator("ArrayFeatureExtractor", domain=ML, moves=FIRST)
def array_feature_extractor(x: Any, indices: Any) -> Any:
    flat = f.reshape(f.astype(indices, np.int64), (-1,))
    made = f.take(x, flat, axis=x.ndim - 1)
    return f.reshape(made, (1, -1)) if x.ndim == 1 else made


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(*arrays: Any, inputdimensions: Any = ()) -> Any:
    rows = [matrix(x) for x in arrays]
    wanted = list(inputdimensions) or [x.shape[1] for x in rows]
    cut = [f.getitem(x, (slice(None), slice(0, n))) for x, n in zip(rows, wanted)]
    return f.concatenate([f.astype(x, np.float32) for x in cut], 1)


@operator("OneHotEncoder", domain=ML, carried=True)
def one_hot_encoder(
    x: Any, *, cats_int64s: Any = (), cats_strings: Any = (), zeros: int = 1
) -> Any:
    if isinstance(x, Text):
        same = [[word == category for category in cats_strings] for word in x.words]
        return x.through(same, np.float32)
    classes = np.asarray(cats_int64s, np.int64)
    wide = f.expand_dims(f.astype(x, np.int64), -1)
    return f.astype(f.equal(wide, classes), np.float32)


@operator("LabelEncoder", domain=ML, since=2, carried=True)
def label_encoder(
    x: Any,
    *,
    keys_int64s: Any = None,
    keys_floats: Any = None,
    keys_tensor: Any = None,
    keys_strings: Any = None,
    values_int64s: Any = None,
    values_floats: Any = None,
    values_tensor: Any = None,
    values_strings: Any = None,
    default_int64: int = -1,
    default_float: float = -0.0,
    default_tensor: Any = None,
    default_string: str = "_Unused",
) -> Any:
    keys = _first(keys_strings, keys_int64s, keys_floats, keys_tensor)
    place = _place_of(x, keys)
    if values_strings is None and (values_tensor is None or values_tensor.dtype != object):
        values = _first(
            None if values_int64s is None else np.asarray(values_int64s, np.int64),
            None if values_floats is None else np.asarray(values_floats, np.float32),
            values_tensor,
        )
        plain = default_float if values.dtype.kind == "f" else default_int64
        default = plain if default_tensor is None else default_tensor.reshape(-1)[0]
        return f.take(np.append(values, np.asarray(default, values.dtype)), place, axis=0)
    words = _first(values_strings, values_tensor).tolist()
    other = default_string if default_tensor is None else default_tensor.reshape(-1)[0]
    return Text(place, (*words, other))


def _first(*given: Any) -> Array:
    found = [np.asarray(v) for v in given if v is not None]
    refuse(bool(found), "has no keys or values")
    return found[0].reshape(-1)


def _place_of(x: Any, keys: Array) -> Any:
    """Where each element is among the keys; their number where it is not."""
    refuse(isinstance(x, Text) == (keys.dtype.kind in "OU"), "keys of another type")
    if isinstance(x, Text):
        places = {key: k for k, key in reversed(list(enumerate(keys.tolist())))}
        return x.through([places.get(word, len(keys)) for word in x.words], np.int64)
    wide = f.expand_dims(x, -1)
    equal = f.equal(wide, keys.astype(x.dtype))
    if keys.dtype.kind == "f":
        equal = f.logical_or(equal, f.logical_and(f.isnan(wide), np.isnan(keys)))
    found = f.astype(f.argmax(equal, axis=-1), np.int64)
    return f.where(f.any(equal, axis=-1), found, np.int64(len(keys)))


@operator("CategoryMapper", domain=ML, carried=True)
def category_mapper(
    x: Any,
    *,
    cats_int64s: Any = (),
    cats_strings: Any = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:
    if isinstance(x, Text):
        place = _place_of(x, np.asarray(cats_strings, object))
        return f.take(np.array([*cats_int64s, default_int64], np.int64), place, axis=0)
    place = _place_of(x, np.asarray(cats_int64s, np.int64))
    return Text(place, (*cats_strings, default_string))


@operator("ZipMap", domain=ML)
def zip_map(x: Any, *, classlabels_int64s: Any = (), classlabels_strings: Any = ()) -> Any:
    keys = tuple(classlabels_strings) or tuple(map(int, classlabels_int64s))
    refuse(x.ndim in (1, 2) and x.shape[-1] == len(keys), f"{len(keys)} keys for each row")
    return Maps(x, keys)


# ------------------------------------------------------------------------------------ linear


def transformed(scores: Any, post: str) -> Any:
    """What a model makes of its scores."""
    if post == "SOFTMAX":
        return f.softmax(scores, -1)
    if post == "SOFTMAX_ZERO":
        zero = f.equal(scores, 0)
        made = f.exp(f.subtract(scores, f.max(scores, axis=-1, keepdims=True)))
        made = f.where(zero, np.float32(0), made)
        return f.divide(made, f.sum(made, axis=-1, keepdims=True))
    if post == "LOGISTIC":
        return f.sigmoid(scores)
    if post == "PROBIT":
        wide = f.subtract(f.multiply(scores, 2), 1)
        return f.multiply(f.erfinv(wide), np.float32(np.sqrt(2)))
    refuse(post in ("NONE", ""), f"no transform {post!r}")
    return scores


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    x: Any,
    *,
    coefficients: Any = (),
    intercepts: Any = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Any:
    weights = floats(coefficients).reshape(targets, -1)
    made = f.matmul(f.astype(matrix(x), np.float32), np.ascontiguousarray(weights.T))
    made = f.add(made, floats(intercepts)) if len(intercepts) else made
    return transformed(made, post_transform)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    x: Any,
    *,
    classlabels_ints: Any = (),
    classlabels_strings: Any = (),
    coefficients: Any,
    intercepts: Any = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> Any:
    labels = Labels(classlabels_ints, classlabels_strings)
    wide = f.astype(matrix(x), np.float32)
    weights = floats(coefficients).reshape(-1, wide.shape[1])
    scores = f.matmul(wide, np.ascontiguousarray(weights.T))
    scores = f.add(scores, floats(intercepts)) if len(intercepts) else scores
    return classified(scores, labels, post_transform)


class Labels:
    """What the classes of a model are called: integers or strings."""

    def __init__(self, integers: Any, strings: Any) -> None:
        self.words = tuple(strings)
        self.numbers = np.asarray(integers, np.int64)

    def __len__(self) -> int:
        return len(self.words) or len(self.numbers)

    def at(self, place: Any) -> Any:
        """The labels of classes by their places."""
        if self.words:
            return Text(f.astype(place, np.int64), self.words)
        return f.take(self.numbers, place, axis=0)

    def second(self, condition: Any) -> Any:
        """The second label where a condition holds, else the first."""
        return self.at(f.astype(condition, np.int64))


def classified(scores: Any, labels: Labels, post: str) -> Any:
    """Labels and transformed scores; one score for two labels is that of the second."""
    if scores.shape[1] == 1 and len(labels) == 2:
        second = f.greater(f.getitem(scores, (slice(None), 0)), np.float32(0))
        one = transformed(scores, post if post in ("LOGISTIC", "PROBIT") else "NONE")
        return labels.second(second), f.concatenate([f.subtract(1, one), one], 1)
    return labels.at(f.argmax(scores, axis=1)), transformed(scores, post)


# ------------------------------------------------------------------------------------ trees

_TESTS = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_MEMBER = len(_TESTS)


class _Trees:
    """All trees of an ensemble in one table of nodes, and the level that is deepest.

    feature, test, edge, yes, no   of each node; a leaf goes to itself
    weights                        what a leaf adds to each target
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
        members: Array | None = None,
    ) -> None:
        self.feature, self.test, self.edge = feature, test, edge
        self.yes, self.no, self.missing, self.roots = yes, no, missing, roots
        self.weights, self.members = weights, members
        self.depth = self._depth()

    def _depth(self) -> int:
        level, depth = np.unique(self.roots), 0
        leaf = (self.yes == np.arange(len(self.yes))) & (self.no == self.yes)
        while not leaf[level].all():
            depth += 1
            refuse(depth <= 256, "trees deeper than 256 levels")
            level = np.unique(np.concatenate([self.yes[level], self.no[level]]))
        return depth

    def leaves(self, x: Any) -> Any:
        """The leaf that each row ends in, per tree: [rows, trees]."""
        rows = x.shape[0]
        at = f.broadcast_to(self.roots[None], (rows, len(self.roots)))
        for _ in range(self.depth):
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
        given = f.take(self.weights, self.leaves(x), axis=0)
        reduce = {"SUM": f.sum, "AVERAGE": f.mean, "MIN": f.min, "MAX": f.max}
        refuse(aggregate in reduce, f"no aggregate {aggregate!r}")
        return reduce[aggregate](given, axis=1)


def _trees(attributes: dict[str, Any], prefix: str, count: int, kind: Any) -> _Trees:
    """Trees from the lists of the older operators, one entry per node."""
    trees = np.asarray(attributes["nodes_treeids"], np.int64)
    numbers = np.asarray(attributes["nodes_nodeids"], np.int64)
    place = {(int(t), int(n)): k for k, (t, n) in enumerate(zip(trees, numbers))}
    modes = attributes["nodes_modes"]
    own = np.arange(len(trees), dtype=np.int64)
    yes, no = own.copy(), own.copy()
    test = np.zeros(len(trees), np.int64)
    for k, mode in enumerate(modes):
        if mode == "LEAF":
            continue
        refuse(mode in _TESTS, f"no test {mode!r}")
        test[k] = _TESTS.index(mode)
        yes[k] = place[int(trees[k]), int(attributes["nodes_truenodeids"][k])]
        no[k] = place[int(trees[k]), int(attributes["nodes_falsenodeids"][k])]
    missing = np.zeros(len(trees), bool)
    given = attributes["nodes_missing_value_tracks_true"]
    missing[: len(given)] = np.asarray(given, bool)
    weights = np.zeros((len(trees), count), kind)
    for tree, node, target, weight in zip(
        attributes[f"{prefix}_treeids"],
        attributes[f"{prefix}_nodeids"],
        attributes[f"{prefix}_ids"],
        attributes[f"{prefix}_weights"],
    ):
        weights[place[int(tree), int(node)], int(target)] += weight
    roots = np.sort(np.unique(trees, return_index=True)[1])
    return _Trees(
        np.asarray(attributes["nodes_featureids"], np.int64),
        test,
        np.asarray(attributes["nodes_values"], kind),
        yes,
        no,
        missing,
        roots,
        weights,
    )


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
    forest = _trees(given, "target", n_targets, kind)
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
        given["class_ids"] = [0] * len(class_ids)
    forest = _trees(given, "class", columns, kind)
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

    weights = np.zeros((inner + outer, n_targets), kind)
    weights[leaf, np.asarray(leaf_targetids, np.int64)] = np.asarray(leaf_weights).reshape(-1)
    forest = _Trees(
        padded(nodes_featureids, np.int64),
        padded(modes, np.int64),
        padded(np.asarray(nodes_splits).reshape(-1), kind),
        ends(nodes_truenodeids, nodes_trueleafs),
        ends(nodes_falsenodeids, nodes_falseleafs),
        padded(nodes_missing_value_tracks_true, bool),
        np.asarray(tree_roots, np.int64),
        weights,
        _members(modes, membership_values, inner + outer, kind),
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
