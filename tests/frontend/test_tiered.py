"""`gc.compile(f, tiered=True)`: NumPy answers first calls while a thread compiles."""

import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import graphc as gc
from graphc import GraphError, limits
from graphc.frontend.compile import making as threads
from graphc.frontend.compile import tiered

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)


def model(x):
    return {"y": np.tanh(x @ x.T), "s": (x.sum(axis=0), x)}


@pytest.fixture
def one_by_one(monkeypatch):
    """A thread compiles once the first call is answered, however long that takes."""
    monkeypatch.setattr(threads, "HEAD_START", 1e6)


def making(function, *args):
    """The thread that compiles a function for arguments."""
    return function._variant_of(args, {})[0].making


def finish(function, *args):
    making(function, *args).join()


def same(made, wanted):
    np.testing.assert_allclose(made["y"], wanted["y"], rtol=1e-6)
    np.testing.assert_allclose(made["s"][0], wanted["s"][0], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(made["s"][1], wanted["s"][1])


def test_the_first_call_is_interpreted_and_later_ones_run_code(one_by_one):
    f = gc.compile(model, tiered=True)
    same(f(X), model(X))
    finish(f, X)
    assert [entry.interpreted for entry in f.compiles] == [1]
    assert "1 calls interpreted meanwhile" in str(f.compiles[0])
    same(f(X), model(X))
    assert f._last.variant.built is not None  # an entry of the code is remembered
    assert len(f.compiles) == 1


def test_a_call_gives_way_to_the_code_between_two_nodes(one_by_one, monkeypatch):
    seen, node = [], tiered._Meanwhile.node

    def waits(self, each, inputs):
        seen.append(each.op.name)
        if len(seen) == 2:
            self._variant.making.answered.set()
            self._variant.making.join()
        return node(self, each, inputs)

    monkeypatch.setattr(tiered._Meanwhile, "node", waits)
    f = gc.compile(model, tiered=True)
    same(f(X), model(X))
    assert len(seen) == 2
    assert [entry.interpreted for entry in f.compiles] == [0]


@pytest.mark.parametrize(
    "options",
    [
        {"donate": ["x"]},
        {"check_finite": True},
        {"fast_math": False},
        {"parity": True},
        {"memory_limit": 1 << 20},
        {"devices": ["cpu:0", "cpu:1"]},
        {"precision": "bf16"},
    ],
)
def test_what_interpreting_would_change_is_compiled_first(options):
    f = gc.compile(lambda x: np.tanh(x @ x.T), tiered=True, **options)
    np.testing.assert_allclose(f(X.copy()), np.tanh(X @ X.T), rtol=2e-2)
    assert [entry.interpreted for entry in f.compiles] == [0]


def test_variables_are_compiled_first():
    total = gc.Variable(np.zeros(3, np.float32), name="total_of_tiered")

    @gc.compile(tiered=True)
    def add(x):
        total.assign(total + x)
        return total * 1

    np.testing.assert_array_equal(add(np.ones(3, np.float32)), np.ones(3))
    np.testing.assert_array_equal(add(np.ones(3, np.float32)), np.full(3, 2))
    assert [entry.interpreted for entry in add.compiles] == [0]


def test_large_values_are_compiled_first(monkeypatch):
    monkeypatch.setattr(tiered, "MOST_BYTES", 4 * 6 * 4 - 1)
    f = gc.compile(lambda x: np.tanh(x).sum(), tiered=True)
    f(X)
    assert [entry.interpreted for entry in f.compiles] == [0]


def test_results_are_new_arrays(one_by_one):
    kept = np.arange(3.0)
    f = gc.compile(lambda x: (x, x, x.T, x.reshape(-1), np.asarray(kept) + 0, kept), tiered=True)
    x = X.copy()
    made = f(x)
    for k, each in enumerate(made):
        assert each.flags.writeable and each.flags.c_contiguous
        assert not any(np.shares_memory(each, other) for other in (x, kept, *made[:k]))


def test_an_interpreted_call_has_the_types_of_later_ones(one_by_one):
    def mixed(x, k):
        return x.astype("bfloat16"), np.argmax(x), x > 0, x.sum() * k, x.astype(np.float16) + k

    f = gc.compile(mixed, tiered=True)
    first = f(X, 2)
    finish(f, X, 2)
    for early, late in zip(first, f(X, 2), strict=True):
        assert (type(early), early.dtype, early.shape) == (type(late), late.dtype, late.shape)


def test_what_does_not_compile_is_said_by_the_next_call(one_by_one):
    f = gc.compile(lambda x: np.sort(np.tanh(x @ x.T)), tiered=True)
    before = limits.limit("kernels")
    limits.set_limit("kernels", 1)
    try:
        np.testing.assert_allclose(f(X), np.sort(np.tanh(X @ X.T)), rtol=1e-6)
        finish(f, X)
        with pytest.raises(GraphError, match="kernels"):
            f(X)
    finally:
        limits.set_limit("kernels", before)


def test_a_run_that_fails_says_so(one_by_one):
    f = gc.compile(lambda x, k: x[k], tiered=True)
    with pytest.raises(gc.RunError, match="out of"):
        f(X, np.array([7]))


def test_max_compiles_counts_what_a_thread_makes(one_by_one):
    f = gc.compile(lambda x: x * 2, tiered=True, max_compiles=1, sizes="exact")
    f(X)
    finish(f, X)
    with pytest.raises(GraphError, match="max_compiles"):
        f(X[:2])


def test_other_sizes_are_served_by_one_compilation(one_by_one):
    f = gc.compile(lambda x: x * 2, tiered=True)
    for rows in (4, 3, 2, 1):
        np.testing.assert_array_equal(f(X[:rows]), X[:rows] * 2)
    finish(f, X)
    assert sorted(entry.interpreted for entry in f.compiles) == [0, 1]


def test_gradients_and_loops(one_by_one):
    def loss(w):
        return gc.fori(0, 5, lambda k, total: total + np.sum(np.tanh(w) ** 2), np.float32(0))

    f = gc.compile(gc.grad(loss), tiered=True)
    first = f(X)
    finish(f, X)
    np.testing.assert_allclose(first, f(X), rtol=1e-5)


def test_many_threads_call_at_once():
    f = gc.compile(model, tiered=True)
    made, start = [], threading.Barrier(8)

    def call():
        start.wait()
        made.append(f(X))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(made) == 8
    for each in made:
        same(each, model(X))
    finish(f, X)
    assert len(f.compiles) == 1


def times(x):
    return x * 3


tripled = gc.compile(times, tiered=True)


def test_a_copy_by_pickle_is_tiered_too(one_by_one):
    f = gc.compile(times, tiered=True, max_compiles=2, static=())
    copy = pickle.loads(pickle.dumps(f))
    assert copy.tiered and copy.max_compiles == 2
    np.testing.assert_array_equal(copy(X), X * 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_compiles_itself(one_by_one, monkeypatch):
    f = gc.compile(times, tiered=True)
    halted = threading.Event()
    compile = f._variants.compile
    monkeypatch.setattr(f._variants, "compile", lambda variant: halted.wait() and compile(variant))
    f(X)
    monkeypatch.undo()
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(f(X), X * 3) and len(f.compiles) == 1 else 1)
    halted.set()
    assert os.waitpid(child, 0)[1] == 0
    finish(f, X)


def test_a_process_ends_while_a_thread_compiles():
    code = (
        "import numpy as np, graphc as gc\n"
        "print(gc.compile(lambda x: np.tanh(x @ x), tiered=True)(np.ones((4, 4))).sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_tiered_is_true_or_false():
    with pytest.raises(GraphError, match="tiered must be True or False"):
        gc.compile(times, tiered=1)
