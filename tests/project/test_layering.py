"""Imports point one way, and the expensive ones stay out of what every user pays for."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "graphc"
# A layer may import itself and the layers named here.
BASE = {"captures", "errors", "forks", "hints", "limits", "record", "tuning", "gpu"}
ALLOWED = {
    "captures": set(),
    "errors": set(),
    "limits": {"errors"},
    "hints": {"errors"},
    "forks": set(),
    "record": set(),
    "tuning": {"errors"},
    "gpu": {"errors"},
    "collector": set(),
    "config": BASE | {"runtime"},
    "ir": BASE,
    "loops": BASE | {"ir"},
    "ops": BASE | {"ir", "loops"},
    "runtime": BASE,
    "codegen": BASE | {"loops", "config", "ir", "ops", "runtime"},
    "passes": BASE | {"loops", "collector", "config", "ir", "ops", "codegen", "runtime"},
    "frontend": BASE
    | {"loops", "collector", "config", "ir", "ops", "runtime", "codegen", "passes"},
    "linalg": BASE | {"ops"},
    "random": BASE | {"ops"},
    "numpy": BASE | {"frontend"},
    "formats": BASE | {"config", "ir", "ops", "runtime", "passes", "frontend"},
    "learn": BASE | {"config", "ir", "ops", "runtime", "frontend", "formats"},
    **dict.fromkeys(("data", "nn", "optim", "parallel"), BASE | {"learn"}),
    "cli": BASE | {"config", "ir", "ops", "runtime", "codegen", "passes", "frontend", "formats"},
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
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


FILES = sorted(p for p in ROOT.rglob("*.py") if p.name not in ("__init__.py", "__main__.py"))


def test_every_file_is_in_a_layer() -> None:
    layers = {path: layer_of(module_of(path)) for path in FILES}
    assert not [path for path, layer in layers.items() if layer not in ALLOWED]


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        layer = layer_of(module_of(path))
        for module in imports_of(path):
            other = layer_of(module)
            if other not in (None, layer, *ALLOWED[layer]):
                wrong.append(f"{path}: {layer} must not import {module}")
    assert not wrong, "\n".join(wrong)


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
