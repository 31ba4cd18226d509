"""Every argument of public functions, with values of other kinds: done, or refused by a GraphError,
which is also what Python says; what a function of the user's raises stays what it is."""

from __future__ import annotations

import copy
import errno
import pickle
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import linalg, nn, random, sparse, summary
from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.errors import GraphError

X = np.arange(12.0, dtype="f4").reshape(3, 4)
Y, P, L = np.ones((3, 4), "f4"), np.full((3, 4), 0.3, "f4"), np.array([0, 1, 2])
S = np.eye(3) * 3 + np.ones((3, 3))
K = np.array([0, 7], np.uint32)
DENSE = nn.Dense(3, 2)
WEIGHTS = {"weight": np.ones((3, 2), "f4"), "bias": np.ones(2, "f4")}
CSR = {"data": np.ones(2, "f4"), "indices": L[:2], "indptr": L, "shape": (2, 2)}
TEXT = "gir 1\ngraph @f(%0 x: f32[2]) {\n  return %0\n}\n"
WRONG: tuple[Any, ...] = (
    None,
    3,
    -1,
    1.5,
    np.nan,
    10**30,
    True,
    "x",
    [],
    {},
    [None],
    ["x"],
    object(),
    b"x",
    1j,
    np.array("x"),
)
AT_ONCE = 3  # of them for each argument: the next ones for the next


def given(function: Callable[..., Any], /, **arguments: Any) -> Any:
    """What is called, and with which arguments."""
    return function, arguments


CASES = [
    given(nn.accuracy, logits=X, labels=L, axis=-1),
    given(nn.binary_accuracy, predictions=P, labels=Y, threshold=0.5),
    given(nn.binary_cross_entropy, p=P, y=Y, reduction="mean"),
    given(nn.cross_entropy, logits=X, labels=L, axis=-1, label_smoothing=0.0, reduction="mean"),
    given(nn.dropout, x=X, rate=0.5, key=K),
    given(nn.huber, x=X, y=Y, delta=1.0, reduction="mean"),
    given(nn.kl_divergence, log_p=X, target=Y, axis=-1),
    given(nn.mse, x=X, y=Y, reduction="mean"),
    given(nn.nll, log_probabilities=X, labels=L, axis=-1, reduction="mean"),
    given(nn.parameter_count, tree=WEIGHTS),
    given(nn.Dense, inputs=4, outputs=2, bias=True),
    given(nn.Conv, inputs=2, outputs=2, window=3, stride=1, padding=0, dilation=1, groups=1),
    given(nn.MaxPool, window=2, stride=None, padding=0),
    given(nn.BatchNorm, channels=4, momentum=0.1, epsilon=1e-5, axis=1),
    given(nn.LayerNorm, width=4, epsilon=1e-5, bias=True),
    given(nn.Dropout, rate=0.5),
    given(nn.Embedding, count=4, width=3),
    given(nn.LSTM, inputs=3, hidden=2, sequences=True, time_first=False, unroll=False),
    given(nn.MultiHeadAttention, width=4, heads=2, causal=False, bias=True),
    given(nn.state_dict, layer=DENSE, params=WEIGHTS, name="a"),
    given(
        nn.load_state_dict, layer=DENSE, weights={**WEIGHTS, "weight": np.ones((2, 3))}, names=""
    ),
    given(nn.load_keras, layer=DENSE, weights=list(WEIGHTS.values())),
    given(nn.keras_weights, layer=DENSE, params=WEIGHTS),
    given(random.key, seed=3),
    given(random.split, key=K, count=2),
    given(random.fold_in, key=K, data=2),
    given(random.bits, key=K, shape=(2,), dtype="u32"),
    given(random.uniform, key=K, shape=(2,), dtype="f32", minval=0.5, maxval=1.0),
    given(random.normal, key=K, shape=(2,), dtype="f32"),
    given(random.bernoulli, key=K, p=0.5, shape=(2,)),
    given(random.categorical, key=K, logits=X, axis=-1, shape=None),
    given(random.choice, key=K, x=X, shape=(2,), replace=True),
    given(random.permutation, key=K, x=X, axis=0),
    given(random.randint, key=K, shape=(2,), minval=0, maxval=4, dtype="i32"),
    given(random.truncated_normal, key=K, lower=-1.0, upper=1.0, shape=(2,)),
    given(linalg.cond, x=S, p=None),
    given(linalg.eigh, a=S, UPLO="L"),
    given(linalg.inv, a=S),
    given(linalg.lstsq, a=S, b=S, rcond=None),
    given(linalg.matrix_norm, x=S, keepdims=False, ord="fro"),
    given(linalg.matrix_power, a=S, n=2),
    given(linalg.multi_dot, arrays=[S, S]),
    given(linalg.norm, x=S, ord=None, axis=None, keepdims=False),
    given(linalg.qr, a=S, mode="reduced"),
    given(linalg.solve, a=S, b=S),
    given(linalg.svd, a=S, full_matrices=True, compute_uv=True),
    given(linalg.tensordot, a=S, b=S, axes=2),
    given(linalg.tensorsolve, a=np.eye(4).reshape(2, 2, 2, 2), b=Y[:2, :2], axes=None),
    given(linalg.vector_norm, x=S, axis=None, keepdims=False, ord=2),
    given(sparse.csr, **CSR),
    given(lambda x: sparse.csr(**CSR) @ x, x=Y[:2, :2]),
    given(summary.scalar, tag="a", value=1.0, step=0),
    given(summary.text, tag="a", text="t", step=0),
    given(summary.CSV, path="a.csv"),
    given(gc.spec, shape=(2, 3), dtype_="f32"),
    given(gc.parse, text=TEXT),
    given(gc.show, value=gc.parse(TEXT)),
    given(gc.save, path="m.gir", value=gc.parse(TEXT)),
    given(gc.load, path="m.gir"),
    given(gc.convert, source=TEXT, target="m.gir", sizes=None, feeds=None),
    given(gc.save_checkpoint, path="c", tree={"a": X}),
    given(gc.load_checkpoint, path="c", template={"a": X}),
    given(gc.cond, pred=True, then=lambda: 1.0, otherwise=lambda: 2.0),
    given(gc.switch, index=0, branches=[lambda: 1.0, lambda: 2.0]),
    given(gc.scan, body=lambda c, x: (c, x), init=0.0, xs=L),
    given(gc.fori, start=0, stop=3, body=lambda i, c: c, init=0.0),
    given(gc.while_loop, test=lambda c: False, body=lambda c: c, init=0.0),
    given(gc.map, body=lambda r: r, xs=X),
    given(gc.quantize, tree={"w": Y}, axis=0, least=1, bits=8, group=None),
    given(gc.fake_quantize, x=Y, bits=8, axis=0, group=None, limits=None),
    given(gc.custom_op, name="refused_op"),
    given(gc.EarlyStopping, monitor="val_loss", patience=0, min_delta=0.0),
    given(gc.CSVLogger, path="a.csv"),
    given(gc.SaveBest, path="b", monitor="loss"),
    given(gc.Checkpoints, folder="k", every_steps=2),
]


def times(x: Any, w: Any) -> Any:
    return np.sum(np.multiply(x, w))


def used(make: Callable[..., Any]) -> Callable[..., Any]:
    """What it makes of a function is called once."""
    return lambda **arguments: make(**arguments)(X, Y)


OPTIONS = {name: getattr(Config(), name) for name in Config.__match_args__ if name != "donate"}
SESSION = gc.Session()
SQUARE = "graph @f(%0 x: f32[2]) {\n  %1 = mul(%0, %0) : f32[2]\n  return y: %1\n}"
SESSION.extend(SQUARE)
CASES += [
    given(
        used(gc.compile),
        function=times,
        static=(),
        donate=(),
        sizes=None,
        max_compiles=2,
        tiered=False,
    ),
    given(used(gc.compile), function=times, **OPTIONS),
    given(gc.Session, **OPTIONS),
    given(used(gc.grad), function=times, wrt=0, has_aux=False),
    given(used(gc.value_and_grad), function=times, wrt=(0, 1), has_aux=False),
    given(used(gc.jacobian), function=times, wrt="x"),
    given(used(gc.hessian), function=times, wrt=1),
    given(used(gc.vmap), function=times, in_axes=0, out_axes=0, axis_name=None),
    given(used(gc.vmap), function=times, axis_size=None, devices=None),
    given(lambda function: gc.vjp(function, X), function=np.sin),
    given(gc.jvp, function=np.sin, primals=(X,), tangents=(X,)),
    given(gc.vjp(np.sin, X)[1], cotangent=X),
    *(given(make(times), x=X, w=Y) for make in (gc.compile, gc.grad, gc.jacobian, gc.vmap)),
    given(gc.compile(times).graph, x=X, w=Y),
    given(gc.gradients, y="y", xs=["x"], unconnected="none", graph=SQUARE),
    given(partial(SESSION.run, "y"), feeds={"x": Y[0, :2]}, targets=()),
    given(lambda **a: gc.Session().extend(SQUARE, **a), inputs=None, scope=""),
    given(gc.Model, network=DENSE, params=WEIGHTS, loss=nn.mse, optimizer=gc.optim.sgd()),
    given(partial(gc.Model, DENSE, loss=nn.mse, optimizer=gc.optim.sgd()), metrics=(), seed=0),
    given(gc.Variable, init=1.0, name=None, container=None, dtype=None),
    given(lambda function: gc.precision_report(function, X, Y), function=times),
    given(gc.nms, boxes=np.ones((1, 2, 4)), scores=np.ones((1, 1, 2)), most=2, overlap=0.5),
]
LONG = {("scan", "length"), ("fori", "stop")}  # 10**30 turns


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(len(CASES)))
def test_arguments_of_other_kinds(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gc.save("m.gir", gc.parse(TEXT))
    gc.save_checkpoint("c", {"a": X})
    function, arguments = CASES[number]
    function(**arguments)
    turn = number
    for name in arguments:
        for wrong in (WRONG * 2)[turn % len(WRONG) :][:AT_ONCE]:
            if (getattr(function, "__name__", ""), name) in LONG and wrong == 10**30:
                continue
            with suppress(GraphError):
                function(**{**arguments, name: wrong})
        turn += AT_ONCE


def test_a_refusal_is_what_python_says_too() -> None:
    with pytest.raises(
        TypeError, match=r"uniform: unsupported .*\n.*it takes uniform\(key"
    ) as caught:
        random.uniform(K, (2,), minval=None)
    assert isinstance(caught.value, GraphError)
    with pytest.raises(AttributeError, match=r"(save|show): ") as found:
        gc.save("m.gir", None)
    assert isinstance(found.value, GraphError)


def test_what_functions_of_the_user_raise_stays_what_it_is() -> None:
    def bad(*_: Any) -> Any:
        raise ValueError("mine")

    for call in (
        lambda: gc.fori(0, 3, bad, 0.0),
        lambda: gc.map(bad, X),
        lambda: gc.cond(True, bad, bad),
        lambda: gc.compile(lambda x: gc.scan(bad, 0.0, x))(X),
    ):
        with pytest.raises(ValueError, match=r"^mine$") as caught:
            call()
        assert type(caught.value) is ValueError


def test_installed_packages_of_the_user_are_the_users() -> None:
    file = sysconfig.get_path("purelib") + "/my_models.py"
    names: dict[str, Any] = {"__name__": "my_models"}
    exec(compile("def bad(*_): raise ValueError('mine')", file, "exec"), names)
    with pytest.raises(ValueError, match=r"^mine$") as caught:
        gc.fori(0, 3, names["bad"], 0.0)
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("again", [lambda e: e, lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_a_refusal_knows_what_the_error_knew(again: Callable[[Any], Any]) -> None:
    with pytest.raises(GraphError) as caught:
        refusing(open, "open_file")("/no/such/file")
    error = again(caught.value)
    assert isinstance(error, GraphError) and isinstance(error, FileNotFoundError)
    assert (error.errno, error.filename) == (errno.ENOENT, "/no/such/file")
    assert str(error) == str(caught.value) and "it takes open_file(" in str(error)
    with pytest.raises(GraphError, match="invalid start byte") as untold:
        refusing(bytes.decode, "text")(b"\xff")
    assert isinstance(again(untold.value), UnicodeError)


@pytest.mark.parametrize("function", [np.ma.mean, lambda x: np.ma.masked_where(x > 2, x)])
def test_errors_below_numpys_python_name_the_line_of_the_user(function: Any) -> None:
    with pytest.raises(GraphError) as caught:
        gc.compile(lambda x: function(x))(X)
    assert caught.value.location is not None and caught.value.location[0].endswith(
        Path(__file__).name
    )
