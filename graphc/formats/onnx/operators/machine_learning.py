"""ai.onnx.ml: linear models, scalers and encoders of scikit-learn, XGBoost and LightGBM."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.encoded_values import Maps, Text
from graphc.formats.onnx.table import FIRST, ML, operator
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


@operator("LabelEncoder", domain=ML, carried=True)
def label_encoder_of_classes(
    x: Any, *, classes_strings: Any = (), default_int64: int = -1, default_string: str = "_Unused"
) -> Any:
    """The first version: strings become their places among the classes, places the strings."""
    classes = np.asarray(classes_strings, object)
    if isinstance(x, Text):
        places = np.append(np.arange(len(classes)), np.int64(default_int64))
        return f.take(places, _place_of(x, classes), axis=0)
    known = f.logical_and(f.greater_equal(x, 0), f.less(x, len(classes)))
    return Text(f.where(known, x, np.int64(len(classes))), (*classes_strings, default_string))


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
