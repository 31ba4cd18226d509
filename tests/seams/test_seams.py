"""What graphc takes of other projects is there; where it is not, results are the same."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest
from effort import few
from project import environment

from graphc.frontend.compile.decorator import CompiledFunction
from graphc.seams import cpython, glibc, lapack, llvmlite, locks, numba_objects
from graphc.seams import numpy as seam_of_numpy


def in_fresh_process(script: str, **variables: str) -> None:
    """Run a script; what it asserts holds, and it says so."""
    text = textwrap.dedent(script) + "\nprint('done')\n"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment(**variables)
    )
    assert done.returncode == 0 and done.stdout.split()[-1:] == ["done"], done.stderr


# ------------------------------------------------------------------------- they are there


def _numba_has_part() -> bool:
    from graphc.seams import numba

    return hasattr(numba.part(_nothing).targetoptions, "get") and (
        numba.part(_nothing)._compiler.pipeline_class.__name__ == "Quick"
    )


def _nothing() -> None:
    return None


def _numba_has_intrinsics() -> bool:
    from graphc.codegen.numba.intrinsics import fma

    return numba_objects.intrinsic_of(fma) is not None


def _imports_are_seen() -> bool:
    return hasattr(importlib._bootstrap, "_module_locks") and not locks.others_import({"graphc"})


def _locks_are_found() -> bool:
    import numba.core.compiler_lock  # noqa: F401

    return len(locks.of_compilers()) == 2 and all(map(_is_reopened, locks.of_compilers()))


def _is_reopened(lock: object) -> bool:
    return hasattr(lock, "_at_fork_reinit")


TOUCHES: dict[str, Callable[[], object]] = {
    "NumPy lays out arrays in another way: calls take 8 us instead of 0.3": (
        seam_of_numpy.arrays_are_known
    ),
    "CPython keeps lengths elsewhere: nested calls take 22 us instead of 0.6": (
        cpython.lengths_are_known
    ),
    "CPython keeps slots elsewhere: calls of compiled functions take 0.55 us instead of 0.26": (
        lambda: cpython.place_of_slot(CompiledFunction, "_direct")
    ),
    "CPython keeps what cells hold elsewhere: calls of closures take 1.5 us more": (
        cpython.cells_are_known
    ),
    "CPython has no sys._getframe: traced nodes find their lines more slowly": (
        lambda: cpython.frame_above is sys._getframe
    ),
    "RLock has no _at_fork_reinit: locks take ten times as long": (
        lambda: not isinstance(locks.new_lock(), locks.PlainLock)
    ),
    "importlib keeps its locks elsewhere: a fork waits for imports of anybody": _imports_are_seen,
    "logging has no _lock: a fork may wait for a thread that imports and logs": (
        lambda: hasattr(locks.of_logging(), "release")
    ),
    "Numba or llvmlite keeps its lock elsewhere: forks do not wait for them": _locks_are_found,
    "llvmlite wraps LLVM in another way: threads wait for each other": llvmlite.functions,
    "Numba's libraries are others: it takes twice as long": _numba_has_part,
    "Numba's blocks are others: custom ops that allocate are refused": (
        numba_objects.blocks_are_known
    ),
    "Numba's intrinsics are others: kernels with them are kept in no cache": _numba_has_intrinsics,
    "NumPy hides its LAPACK: a decomposition takes some 20 us more, and the interpreter's lock": (
        lambda: all(map(lapack.native, ("sgesdd", "zgesdd", "dsyevd", "dgeev", "dorgqr")))
    ),
    "glibc does not say what it finds usable: an emulator may pass for the machine": (
        lambda: sys.platform != "linux" or glibc.usable_features()
    ),
}


@pytest.mark.parametrize("sentence", TOUCHES)
def test_what_is_touched_is_there(sentence: str) -> None:
    assert TOUCHES[sentence](), sentence


def test_numba_cuda_has_what_makes_it_quick() -> None:
    pytest.importorskip("numba_cuda")
    from graphc.seams.numba_cuda import replacements

    names = [name for _, name, _ in replacements()]
    assert names == ["get_call_type", "define_pipelines"], "numba-cuda's kernels compile slower"


def test_pytorch_names_the_arguments_of_operators() -> None:
    torch = pytest.importorskip("torch")
    from graphc.seams.torch import argument_names, decompositions

    names = argument_names(torch.ops.aten.add.Tensor)
    assert names[:2] == ["self", "other"], "PyTorch's operators have no _schema of this kind"
    assert len(decompositions()) > 100, "PyTorch has no table of decompositions"


# ------------------------------------------------------------------------- they are gone

MODEL = """
    import threading
    import numpy as np
    import graphc as gc

    @gc.compile
    def model(x, more):
        return {"y": np.tanh(x @ more["w"]) + more["b"][0], "z": np.cumsum(x, axis=1)}

    x, w = np.random.default_rng(0).standard_normal((2, 6, 6))
    for _ in range(4):
        made = model(x, {"w": w, "b": (x,)})
        np.testing.assert_allclose(made["y"], np.tanh(x @ w) + x)
        np.testing.assert_allclose(made["z"], np.cumsum(x, axis=1))
"""


@pytest.mark.slow
def test_without_private_parts_of_python_numpy_and_llvmlite(tmp_path) -> None:
    gone = """
        import _thread, importlib, logging, sys
        from types import SimpleNamespace
        import llvmlite.binding
        import ml_dtypes
        import numpy.fft, numpy.linalg, numpy.random
        import numpy._core._multiarray_umath as umath

        class Lock:
            def __init__(self, made=_thread.RLock):
                inner = made()
                self.acquire, self.release = inner.acquire, inner.release
            def __enter__(self): return self.acquire()
            def __exit__(self, *error): self.release()

        class Library:
            def __getattr__(self, name):
                function = getattr(whole, name)
                return lambda *arguments: function(*arguments)

        del umath._ARRAY_API, sys._getframe
        _thread.RLock = Lock
        whole, llvmlite.binding.ffi.lib = llvmlite.binding.ffi.lib, Library()
        importlib._bootstrap = SimpleNamespace(_gcd_import=importlib._bootstrap._gcd_import)
        sys.modules["logging"] = SimpleNamespace(getLogger=logging.getLogger)
        sys.modules["_imp"] = None
    """
    checked = """
    import os
    from graphc.seams import cpython, llvmlite, locks, numpy
    assert not numpy.arrays_are_known() and not llvmlite.functions()
    assert isinstance(locks.new_lock(), locks.PlainLock)
    assert cpython.frame_above.__module__ == "graphc.seams.cpython"

    stop = threading.Event()
    waits = threading.Thread(target=stop.wait)
    waits.start()
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(gc.compile(lambda a: a + 1)(x), x + 1) else 1)
    stop.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        gc.compile(lambda a: a @ np.ones(7))(x)
    except gc.GraphError as error:
        assert "<string>" in str(error), error
    else:
        raise AssertionError
    """
    whole = "\n".join(map(textwrap.dedent, (gone, MODEL, checked)))
    in_fresh_process(whole, GRAPHC_CACHE_DIR=str(tmp_path))


def test_without_the_locks_of_imports_a_fork_waits_for_any(monkeypatch) -> None:
    from types import SimpleNamespace

    begun, go = threading.Event(), threading.Event()
    namespace = {"begun": begun, "go": go}
    code = compile("begun.set(); go.wait()", "<frozen importlib._bootstrap>", "exec")
    monkeypatch.setattr(importlib, "_bootstrap", SimpleNamespace())
    assert not locks.others_import(())
    thread = threading.Thread(target=exec, args=(code, namespace))
    thread.start()
    begun.wait()
    try:
        assert locks.others_import(())
    finally:
        go.set()
        thread.join()


CUSTOM = """
    import numpy as np
    import graphc as gc

    @gc.custom_op("smooth")
    def smooth(x, out):
        kept = np.empty(x.shape[0], np.float64)
        for i in range(x.shape[0]):
            kept[i] = x[max(i - 1, 0)]
        for i in range(x.shape[0]):
            out[i] = 0.5 * (x[i] + kept[i])

    x = np.arange(5.0)
    right = 0.5 * (x + np.array([0.0, 0, 1, 2, 3]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "gone",
    few(
        [
            "import numba.core.codegen as c\ndel c.AOTCodeLibrary",
            "import numba.core.codegen as c\ndel c.CPUCodeLibrary._optimize_final_module",
        ],
        1,
    ),
)
def test_without_private_parts_of_numba(gone: str, tmp_path) -> None:
    pytest.importorskip("numba")
    if "_optimize" in gone:  # Numba itself calls it: there under another name
        gone = """
import numba.core.codegen as c
c.CPUCodeLibrary._optimise = c.CPUCodeLibrary._optimize_final_module
del c.CPUCodeLibrary._optimize_final_module
c.CPUCodeLibrary.finalize.__globals__["_renamed"] = True
import inspect, textwrap
text = textwrap.dedent(inspect.getsource(c.CPUCodeLibrary.finalize))
exec(text.replace("_optimize_final_module", "_optimise"), c.__dict__)
c.CPUCodeLibrary.finalize = c.finalize
"""
    checked = """
    import numba
    from graphc.seams import numba as seam
    assert not seam.part(lambda: 0).targetoptions.get("pipeline_class")
    np.testing.assert_array_equal(gc.compile(lambda x: smooth(x))(x), right)
    made = gc.compile(lambda x: np.exp(x) + 1, backend="numba")(x)
    np.testing.assert_allclose(made, np.exp(x) + 1)
    """
    whole = "\n".join([gone, *map(textwrap.dedent, (CUSTOM, checked))])
    in_fresh_process(whole, GRAPHC_CACHE_DIR=str(tmp_path))


@pytest.mark.slow
def test_without_known_blocks_what_allocates_is_refused(tmp_path) -> None:
    gone = """
import numba
from numba.core.runtime import nrtdynmod
numba.njit(lambda: 0)()  # which Numba needs it for itself
del nrtdynmod._meminfo_struct_type
"""
    checked = """
    try:
        gc.compile(lambda x: smooth(x))(x)
    except gc.GraphError as error:
        assert "preallocated" in str(error), error
    else:
        raise AssertionError
    """
    in_fresh_process(
        "\n".join([gone, *map(textwrap.dedent, (CUSTOM, checked))]), GRAPHC_CACHE_DIR=str(tmp_path)
    )


def test_onnx_is_read_without_its_package_and_imported_later_with_the_same_parts() -> None:
    in_fresh_process("""
        import sys
        from graphc.seams import onnx as seam

        made = seam.messages().TensorProto(name="x")
        assert seam.schema_of("", "Conv", 11).name == "Conv"
        assert seam.schema_of("", "no operator", 11) is None
        assert "onnx" not in sys.modules
        import onnx
        from onnx import helper, numpy_helper
        assert isinstance(made, onnx.TensorProto) and onnx.onnx_ml_pb2.TensorProto is type(made)
        assert issubclass(onnx.onnx_cpp2py_export.checker.ValidationError, Exception)
        assert onnx.defs.get_schema("Conv", 11, "").name == "Conv"
        node = helper.make_node("Relu", ["x"], ["y"])
        given = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
        onnx.checker.check_model(
            helper.make_model(helper.make_graph([node], "g", given[:1], given[1:]))
        )
    """)


def test_without_its_parts_onnx_itself_is_asked() -> None:
    in_fresh_process("""
        import sys
        from graphc.seams import onnx as seam

        seam._parts.load = lambda name: None
        assert seam.messages().TensorProto(name="x").name == "x"
        assert seam.schema_of("", "Conv", 11).name == "Conv"
        assert "onnx" in sys.modules
    """)


def test_parts_of_onnx_that_two_threads_ask_for_are_loaded_once() -> None:
    in_fresh_process("""
        import sys, threading
        from graphc.seams import onnx as seam

        wrong = []

        def ask():
            try:
                seam.messages().TensorProto(name="x")
                seam.schema_of("", "Conv", 11)
            except BaseException as error:
                wrong.append(repr(error))

        def bring():
            try:
                import onnx
                onnx.defs, onnx.load, onnx.TensorProto
                import onnx.checker
                onnx.checker.check_tensor
            except BaseException as error:
                wrong.append(repr(error))

        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=work) for work in (ask, bring) * 6]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seam.schema_of("", "Conv", 11).name == "Conv" and not wrong, wrong
    """)


def test_a_module_is_not_freed_after_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle of both, which an error's traceback may be, is collected in any order."""
    import llvmlite.binding as llvm

    freed: list[Any] = []
    monkeypatch.setattr(llvm.ModuleRef, "_dispose", lambda self: freed.append(self))
    for first in (0, 1):
        context = llvm.create_context()
        module = llvmlite.parse("define i64 @f() { ret i64 1 }", context)
        (context, module)[first].close()
        (module, context)[first].close()
        assert context.closed and module.closed
        assert freed == [module] * first
