"""Imports point one way, and the expensive ones stay out of what every user pays for."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from project import nodes_of

ROOT = Path(__file__).parents[2] / "graphc"
# A layer may import itself and the layers named here.
BASE = {"base", "errors", "forks", "gpu", "limits", "seams", "tuning"}
ALLOWED = {
    "errors": set(),
    "base": {"errors"},
    "limits": {"errors"},
    "tuning": {"errors"},
    "seams": {"base"},
    "forks": {"seams"},
    "gpu": {"errors", "seams"},
    "config": BASE | {"runtime"},
    "ir": BASE,
    "loops": BASE | {"ir"},
    "ops": BASE | {"ir", "loops"},
    "runtime": BASE,
    "codegen": BASE | {"loops", "config", "ir", "ops", "runtime"},
    "passes": BASE | {"loops", "config", "ir", "ops", "codegen", "runtime"},
    "viewer": BASE | {"loops", "config", "ir", "ops", "runtime", "codegen", "passes"},
    "frontend": BASE | {"loops", "config", "ir", "ops", "runtime", "codegen", "passes", "viewer"},
    "cluster": BASE | {"runtime"},
    "linalg": BASE | {"ops"},
    "random": BASE | {"ops"},
    "sparse": BASE | {"ir", "ops", "frontend"},
    "summary": BASE | {"frontend"},
    "numpy": BASE | {"frontend"},
    "formats": BASE
    | {"loops", "config", "ir", "ops", "runtime", "codegen", "passes", "frontend", "viewer"},
    "learn": BASE | {"config", "ir", "ops", "runtime", "frontend", "formats"},
    **dict.fromkeys(("data", "nn", "optim", "parallel"), BASE | {"learn"}),
    "cli": BASE
    | {"config", "ir", "ops", "runtime", "codegen", "passes", "frontend", "formats", "viewer"}
    | {"learn"},
}


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "graphc" or len(parts) == 1:
        return None
    return "cli" if parts[1].startswith("cli") else parts[1]


def module_of(path: Path) -> str:
    return "graphc." + ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def imports_of(path: Path) -> set[str]:
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


FILES = sorted(p for p in ROOT.rglob("*.py") if p.name not in ("__init__.py", "__main__.py"))


def test_every_file_is_in_a_layer() -> None:
    layers = {path: layer_of(module_of(path)) for path in FILES}
    assert not [path for path, layer in layers.items() if layer not in ALLOWED]


@pytest.mark.slow
def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        layer = layer_of(module_of(path))
        for module in imports_of(path):
            other = layer_of(module)
            if other not in (None, layer, *ALLOWED[layer]):
                wrong.append(f"{path}: {layer} must not import {module}")
    assert not wrong, "\n".join(wrong)


# ----------------------------------------------------------------------------------------- circles

# Imports that close a circle, those inside functions and for types included, and why they stay.
CLOSING = {
    "A size is a polynomial over unknowns, and the arguments of an unknown are sizes.": (
        "ir.unknowns -> ir.sizes",
        "ir.size_bounds -> ir.sizes",
    ),
    "Calls of the host name the type of the program that they call: nothing of it is called.": (
        "runtime.load.program -> runtime.call.phased_executable",
    ),
    "`rebuild` counts rewrites, and what is counted is nodes: a type, nothing is called.": (
        "ir.rewrites -> ir.graph",
    ),
    "Vector loops are written into the kernel that asks for them, whose type they name.": (
        "codegen.llvm.lanes -> codegen.llvm.kernel",
        "codegen.llvm.vector -> codegen.llvm.kernel",
    ),
    "Rows of one kind of nodes are written through the writer of the table, which calls them.": (
        "codegen.table.blocks -> codegen.table.steps",
        "codegen.table.control -> codegen.table.steps",
        "codegen.table.messages -> codegen.table.steps",
    ),
    "A region op is split for the parts that partition makes, by what these know.": (
        "passes.devices.split -> passes.devices.partition",
    ),
    "NumPy's folds and `at` of a traced array are scans, and what traces a scan hears NumPy.": (
        "frontend.trace.folds -> frontend.transforms.control",
        "frontend.trace.ufunc_at -> frontend.transforms.control",
    ),
    "A view of a traced array is a traced array, which knows that it may have views.": (
        "frontend.trace.views -> frontend.trace.tracer",
    ),
    "A loop over arrays, outside of any trace, compiles itself as a user would.": (
        "frontend.transforms.control -> frontend.compile.decorator",
    ),
    "A compiled function explains itself, against the speed of loops that are compiled so.": (
        "frontend.compile.decorator -> frontend.diagnosis.why",
    ),
    "What is dumped is a compilation, and a compilation that is asked to writes its dump.": (
        "frontend.compile.build -> frontend.files.dump",
    ),
    "A function is saved by tracing it as its own calls do.": (
        "frontend.files.marked_sizes -> frontend.compile.decorator",
    ),
    "A partial run is made by a session, and looks up names there.": (
        "frontend.session.partial_run -> frontend.session.session",
    ),
    "The run of `fit` is made by a model, whose state it changes.": (
        "learn.fitting -> learn.model",
    ),
    "The table of PyTorch's operators is filled when a program is read; some hold programs.": (
        "formats.torch.interpret -> formats.torch.operators",
    ),
    "Whose memory a run has is the frame's; what runs it, or calls Python for it, is given it.": (
        "runtime.call.host -> runtime.call.frame",
        "runtime.call.library_runs -> runtime.call.frame",
        "runtime.call.pending -> runtime.call.execute",
    ),
    "A GPU's part of a program is a part like a CPU's, loaded only where there is one.": (
        "runtime.call.frame -> runtime.cuda.part",
    ),
    "A part of a GPU owns its frames and what chooses its products; these name its type.": (
        "runtime.cuda.frame -> runtime.cuda.part",
        "runtime.cuda.gemm_choice -> runtime.cuda.part",
        "runtime.cuda.autotune -> runtime.cuda.gemm_choice",
    ),
    "A frame of a GPU owns what runs its rows and its messages; these name its type.": (
        "runtime.cuda.row_runners -> runtime.cuda.frame",
        "runtime.cuda.messages -> runtime.cuda.frame",
    ),
    "Loops and branches that a GPU takes itself are steps of the recorder that asks for them.": (
        "runtime.cuda.device_loops -> runtime.cuda.row_runners",
        "runtime.cuda.device_branches -> runtime.cuda.row_runners",
    ),
    "A driver owns its graphs and its library of products, which are made by its calls.": (
        "runtime.cuda.driver -> runtime.cuda.cublas",
        "runtime.cuda.graphs -> runtime.cuda.driver",
    ),
    "A program runs in other processes where its devices do; each then runs programs itself.": (
        "runtime.devices.multi_device -> runtime.cluster.program",
        "runtime.devices.jobs -> runtime.cluster.local_workers",
    ),
}


def imported_modules() -> dict[str, set[str]]:
    """The modules of graphc, without that prefix, each with those that it imports anywhere."""
    files = {path.relative_to(ROOT.parent).with_suffix(""): path for path in ROOT.rglob("*.py")}
    paths = {".".join(p.parts).removesuffix(".__init__"): path for p, path in files.items()}
    found: dict[str, set[str]] = {name: set() for name in paths}
    for name, path in paths.items():
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= inner & paths.keys()
                found[name] |= {node.module} if inner - paths.keys() else set()
    short = {name: name.removeprefix("graphc.") for name in paths}
    return {short[a]: {short[b] for b in found[a] & paths.keys() - {a}} for a in paths}


def reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """All that a module imports, and what that imports."""
    found, left = {start}, [start]
    while left:
        new = graph[left.pop()] - found
        found |= new
        left += new
    return found


@pytest.mark.slow
def test_imports_make_no_circle() -> None:
    graph = imported_modules()
    arrows = [arrow.split(" -> ") for listed in CLOSING.values() for arrow in listed]
    assert all(other in graph[module] for module, other in arrows), "what is gone is not defended"
    for module, other in arrows:
        graph[module].remove(other)
    assert not circle(graph), " -> ".join(circle(graph))
    idle = [arrow for arrow in arrows if arrow[0] not in reached(graph, arrow[1])]
    assert not idle, f"these close no circle: {idle}"


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, the first one again at the end; or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) in (list("bcb"), list("cbc"))
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_graphc_is_light() -> None:
    assert not {"numba", "scipy", "llvmlite", "lark", "rich", "click"} & loaded_after(
        "import graphc"
    )


def test_compiling_needs_no_numba() -> None:
    call = "gc.compile(lambda x: np.tanh(x).cumsum(0) @ x)(np.ones((4, 4)))"
    assert "numba" not in loaded_after(f"import numpy as np, graphc as gc\n{call}")


def test_cuda_imports_sit_in_two_files() -> None:
    users = [p for p in FILES if any(m.startswith("numba.cuda") for m in imports_of(p))]
    assert len(users) <= 2, users


# ------------------------------------------------------------------------- private parts of others

# Modules that other projects keep for themselves; what of them is named here is documented.
PRIVATE = re.compile(
    r"numba\.(core(?!\.errors)|cuda\.(?!extending|cgutils|types)|np|typed\.)|_imp$|importlib\._"
    r"|llvmlite\.binding\.ffi|ctypes\.pythonapi|numpy\._(?!_)|numpy\.\w+\._(?!_)|onnx\._|torch\._(?!dynamo\.backends)|ml_dtypes\._|cuda\.\w+\._"
)
DOCUMENTED = {"_replace", "_fields", "_asdict", "_make", "_fields_", "_exit"}
WRITTEN = {"_defaults"}  # by `record` into the body of a class


def private_name(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"_[A-Za-z]\w*|__x86\w+", name) is not None


def last_name(node: ast.AST) -> str:
    """The name behind the last dot."""
    return getattr(node, "attr", getattr(node, "id", ""))


def dotted(node: ast.AST) -> str:
    """`a.b.c`, where names are all there is."""
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{getattr(node, 'attr', '')}" if inner else getattr(node, "id", "")


def names_of_our_own(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that a file defines: functions, classes, variables, what is stored to `self`."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {node.attr} if dotted(node.value) in ("self", "made") else set()
    return found


def touches(nodes: Iterable[ast.AST], ours: set[str]) -> Iterator[tuple[int, str]]:
    """Lines that touch a private part of something that is not ours, each with what it touches."""
    for node in nodes:
        attributes, modules = list[object](), list[object]()
        if isinstance(node, ast.Attribute) and dotted(node.value) not in ("self", "cls"):
            attributes, modules = [node.attr], [dotted(node)]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            strings = [getattr(argument, "value", None) for argument in node.args]
            called = last_name(node.func)
            attributes = strings[1:2] if called.endswith("attr") else []
            modules = strings if called.endswith(("get", "import_module")) else []
            if called.endswith("from_address") and any("id(" in ast.unparse(a) for a in node.args):
                yield node.lineno, "the layout of objects"
        for name in attributes:
            if private_name(name) and name not in ours | DOCUMENTED | WRITTEN:
                yield getattr(node, "lineno", 0), str(name)
        for name in modules:
            if isinstance(name, str) and PRIVATE.match(name):
                yield getattr(node, "lineno", 0), name


@pytest.mark.slow
def test_private_parts_of_others_are_touched_in_one_room() -> None:
    outside = [path for path in ROOT.rglob("*.py") if path.parent.name != "seams"]
    ours = set().union(*(names_of_our_own(nodes_of(path)) for path in outside))
    found = [
        f"{path}:{line} touches {name}: that belongs in graphc/seams, with a fallback and a test"
        for path in outside
        for line, name in touches(nodes_of(path), ours)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "lock._at_fork_reinit()",
        "from numba.core.codegen import AOTCodeLibrary",
        "from numba.cuda import dispatcher",
        "from llvmlite.binding import ffi",
        "import _imp",
        "sys._getframe(1)",
        "sys.modules.get('numpy._core._multiarray_umath')",
        "getattr(module, '_ARRAY_API', None)",
        "ctypes.pythonapi.Py_IncRef(x)",
        "ctypes.c_int64.from_address(id(x) + 16)",
        "importlib._bootstrap",
        "from torch._decomp import core_aten_decompositions",
    ],
)
def test_a_touch_is_found(text: str) -> None:
    assert list(touches(ast.walk(ast.parse(text)), set()))
