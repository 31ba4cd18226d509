"""Whatever a user holds is copied and pickled, and works in another process."""

from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys

import numpy as np
import pytest

import graphc as gc
from graphc import nn, optim
from graphc.cli.commands import main
from graphc.ir.op import OPS

X = np.arange(6.0, dtype=np.float32).reshape(3, 2)
nn_init = nn.init


def affine(x):
    return x * 2 + 1


def mean_square(result, target):
    return ((result - target) ** 2).mean()


@gc.compile
def decorated(x):
    return affine(x)


class Scaler:
    def __init__(self, k):
        self.k = k

    @gc.compile
    def predict(self, x):
        return x * self.k


def copies():
    ways = {
        "pickle": lambda x: pickle.loads(pickle.dumps(x)),
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
    }
    try:
        import cloudpickle
    except ImportError:
        return ways
    return {**ways, "cloudpickle": lambda x: pickle.loads(cloudpickle.dumps(x))}


WAYS = copies()
INITIALISERS = {
    "zeros": nn_init.zeros(),
    "constant": nn_init.constant(2.0),
    "uniform": nn_init.uniform(0.5),
    "normal": nn_init.normal(0.1, mean=2.0),
    "glorot_uniform": nn_init.glorot_uniform(),
    "glorot_normal": nn_init.glorot_normal(),
    "he_uniform": nn_init.he_uniform(),
    "he_normal": nn_init.he_normal(),
    "orthogonal": nn_init.orthogonal(2.0),
}
SCHEDULES = {
    "constant": optim.constant(0.1),
    "linear": optim.linear(0.1, 0.0, 5),
    "cosine": optim.cosine(0.1, 5),
    "exponential": optim.exponential(0.1, 0.5, staircase=True),
    "piecewise": optim.piecewise([2], [0.1, 0.2]),
    "warm_up": optim.warm_up(optim.cosine(0.1, 5), 3),
}
OPTIMISERS = {
    "sgd": optim.sgd(0.1),
    "momentum": optim.momentum(0.1, nesterov=True),
    "nesterov": optim.nesterov(0.1),
    "adam": optim.adam(optim.cosine(0.1, 5), beta1=0.8),
    "adamw": optim.adamw(0.1, weight_decay=0.1, mask=optim.matrices),
    "adagrad": optim.adagrad(0.1),
    "rmsprop": optim.rmsprop(0.1),
    "clipped": optim.adam(0.1).clipped(0.5),
}
LAYERS = {
    "dense": nn.Sequential(nn.Dense(2, 3), nn.relu, nn.Dropout(0.5), nn.Dense(3, 1)),
    "norms": nn.Sequential(nn.LayerNorm(2), nn.RMSNorm(2), nn.Residual(nn.Dense(2, 2))),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", INITIALISERS)
def test_initialisers(name, way):
    made = WAYS[way](INITIALISERS[name])
    wanted = INITIALISERS[name](gc.random.key(3), (4, 3), "f32")
    np.testing.assert_array_equal(made(gc.random.key(3), (4, 3), "f32"), wanted)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name, way):
    made = WAYS[way](SCHEDULES[name])
    assert [float(made(k)) for k in range(7)] == [float(SCHEDULES[name](k)) for k in range(7)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name, way):
    def updated(optimiser):
        params, state = {"w": X}, optimiser.init({"w": X})
        for _ in range(3):
            params, state = optimiser.update({"w": X + 1}, state, params)
        return np.asarray(params["w"])

    np.testing.assert_array_equal(updated(WAYS[way](OPTIMISERS[name])), updated(OPTIMISERS[name]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, way):
    layer = LAYERS[name]
    params = layer.init(gc.random.key(0))
    np.testing.assert_array_equal(WAYS[way](layer)(params, X), layer(params, X))


@pytest.mark.parametrize("way", WAYS)
def test_models(way):
    data = (X, X[:, :1])
    make = lambda: gc.Model(
        nn.Dense(2, 1), loss=mean_square, optimizer=optim.adam(0.1), metrics=[nn.mse], threads=1
    )
    model, other = make(), make()
    other.fit(data, 2, verbose=0)
    model.fit(data, 1, verbose=0)
    held = model.params
    made = WAYS[way](model)
    np.testing.assert_array_equal(made.predict(X), model.predict(X))
    assert made.evaluate(data) == model.evaluate(data)
    assert made.step == model.step
    if way != "copy":  # which shares the arrays
        made.train_step(*data)
        np.testing.assert_array_equal(model.params["weight"], held["weight"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "function",
    [
        decorated,
        gc.compile(affine),
        gc.compile(affine, threads=1, check_finite=True),
        Scaler(3.0).predict,
        gc.compile(functools.partial(affine)),
    ],
    ids=["by name", "by function", "options", "bound", "partial"],
)
def test_compiled_functions(function, way):
    made = WAYS[way](function)
    np.testing.assert_array_equal(made(X), function(X))
    if hasattr(function, "config"):
        assert made.config == function.config
    if function is decorated:
        assert made is decorated or way == "copy"


@pytest.mark.parametrize("way", WAYS)
def test_public_functions_and_ops(way):
    for name in ("relu", "transpose", "sum", "softmax", "mse"):
        assert WAYS[way](getattr(gc, name)) is getattr(gc, name)
    for function in (nn.relu, nn.gelu, nn.mse):
        assert WAYS[way](function) is function
    assert WAYS[way](OPS["add"]) is OPS["add"]


@pytest.mark.parametrize("way", WAYS)
def test_graphs(way):
    table = np.arange(5000.0)
    graph = gc.compile(lambda x: (np.tanh(x) * table[:2]).sum() + table.sum()).graph(X)
    assert gc.show(WAYS[way](graph)) == gc.show(graph)
    program = gc.compile(affine).lower(X)
    assert gc.show(WAYS[way](program)) == gc.show(program)
    chain = gc.compile(lambda x: functools.reduce(lambda y, k: np.sin(y), range(5000), x))
    with pytest.warns(gc.GraphHint):
        long = chain.graph(np.ones(2))
    assert len(WAYS[way](long)) == len(long)


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_loaded_graphs_have_variables_of_their_own(way, home, tmp_path):
    v = gc.Variable(np.zeros(2), name="v")
    gc.compile(lambda x: v.assign_add(x)).save(tmp_path / "m.gir", np.ones(2))
    loaded = gc.load(tmp_path / "m.gir")
    loaded(np.ones(2))
    made = WAYS[way](loaded)
    assert made(np.ones(2)).tolist() == [2, 2]
    assert made(np.ones(2)).tolist() == [3, 3]
    assert loaded(np.ones(2)).tolist() == [2, 2]
    assert v.value.tolist() == [0, 0]


def compiled_file(folder, function, spec, *options):
    gc.compile(function).save(folder / "m.gir", spec)
    main(["compile", str(folder / "m.gir"), "-o", str(folder / "m.gcx"), *options])
    return folder / "m.gcx"


@pytest.mark.parametrize("way", WAYS)
def test_compiled_files_are_copied_whole(way, tmp_path):
    programs = {
        "exact": (affine, gc.spec((3, 2), "f32"), []),
        "open": (affine, gc.spec(("n", 2), "f32"), []),
        "phases": (lambda x: np.sort(x[x > 2]), gc.spec((3, 2), "f32"), []),
        "devices": (affine, gc.spec((3, 2), "f32"), ["--devices", "cpu:0,cpu:1"]),
    }
    for name, (function, spec, options) in programs.items():
        path = compiled_file(tmp_path, function, spec, *options)
        loaded = gc.load(path, threads=1)
        path.unlink()  # a copy reads nothing
        made = WAYS[way](loaded)
        assert (made.params, made.result_names) == (loaded.params, loaded.result_names)
        np.testing.assert_array_equal(made(X), loaded(X), err_msg=name)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("share", [False, True])
def test_copies_of_compiled_files_have_variables_of_their_own(way, share, home, tmp_path):
    v = gc.Variable(np.zeros(2), name="v")
    loaded = gc.load(compiled_file(tmp_path, lambda x: v.assign_add(x), np.ones(2)), share=share)
    loaded(np.ones(2))
    made = WAYS[way](loaded)
    assert list(made.containers) == list(loaded.containers)
    assert made(np.ones(2)).tolist() == [2, 2]
    assert WAYS[way](made)(np.ones(2)).tolist() == [3, 3]
    assert loaded(np.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("way", WAYS)
def test_loaders_go_on_where_they_were(way):
    for tree in (X, (X, {"a": X, "b": None})):
        loader = gc.data.arrays(tree, batch=1, shuffle=True, seed=1)
        next(iter(loader))
        made = WAYS[way](loader)
        assert made.state() == loader.state()
        for one, other in zip(made, loader, strict=True):
            assert repr(one) == repr(other)


MODULE = """
import graphc as gc, numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

def line(w, x):
    return x @ w

class Line(RegressorMixin, BaseEstimator):
    def fit(self, x, y):
        self.w_ = np.linalg.lstsq(x, y, rcond=None)[0]
        self.call_ = gc.compile(line)
        return self

    @gc.compile
    def _predict(self, x):
        return x @ self.w_

    def predict(self, x):
        np.testing.assert_allclose(self.call_(self.w_, x), self._predict(x))
        return self._predict(x)
"""
FIT = """
import joblib, numpy as np, sys
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from line_for_test import Line
x = np.random.default_rng(0).normal(size=(30, 3))
pipe = make_pipeline(StandardScaler(), Line()).fit(x, x @ [1.0, 2.0, 3.0])
pipe.predict(x)
joblib.dump((pipe, x, pipe.predict(x)), sys.argv[1])
"""
PREDICT = """
import joblib, numpy as np, sys
pipe, x, wanted = joblib.load(sys.argv[1])
np.testing.assert_allclose(pipe.predict(x), wanted)
print("equal")
"""


@pytest.mark.slow
def test_a_pipeline_is_saved_and_loaded_in_another_process(tmp_path):
    pytest.importorskip("sklearn")
    (tmp_path / "line_for_test.py").write_text(MODULE)
    for code in (FIT, PREDICT):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}",
                str(tmp_path / "pipe.joblib"),
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "equal"
