"""onnx: its messages and the schemas of operators, without the rest of the package.

Importing all of it is 50 ms more of every first call: metadata, converters to text, helpers.  The
two modules are loaded from its folder, and whoever imports onnx later gets the same ones.  Where a
module is called otherwise, or onnx is imported already, the package itself is asked.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def messages() -> Any:
    """What has ModelProto, TensorProto ... Raises ImportError where onnx is not installed."""
    return _parts.get("onnx.onnx_ml_pb2") or importlib.import_module("onnx")


def schema_of(domain: str, op: str, version: int) -> Any:
    """The schema of an operator, or None. Raises ImportError where onnx is not installed."""
    native = _parts.get("onnx.onnx_cpp2py_export")
    schemas = getattr(native, "defs", None) or importlib.import_module("onnx").defs
    try:
        return schemas.get_schema(op, version, domain)
    except schemas.SchemaError:
        return None


class _Parts(MetaPathFinder, Loader):
    """Modules of the package that were loaded for themselves: an import of them finds these."""

    def __init__(self) -> None:
        self.loaded: dict[str, ModuleType] = {}
        self.lock = threading.Lock()

    def get(self, name: str) -> ModuleType | None:
        """A module that was loaded for itself; None where the package is there, or on its way."""
        with self.lock:
            if name not in self.loaded and "onnx" not in sys.modules:
                self.load(name)
        return self.loaded.get(name)

    def load(self, name: str) -> None:
        """Load a module as an import does: one that is under way elsewhere comes first."""
        package = find_spec("onnx")
        steps: Any = importlib._bootstrap
        spec = package and PathFinder.find_spec(name, package.submodule_search_locations)
        if spec is None or not {"_ModuleLockManager", "_load_unlocked"} <= vars(steps).keys():
            return
        with steps._ModuleLockManager(name):
            if name in sys.modules:
                return
            self.loaded[name] = steps._load_unlocked(spec)
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)
            del sys.modules[name]  # an import puts it there again, and into its package

    # -- for imports

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = self.loaded.get(name)
        return ModuleSpec(name, self, origin=found.__file__) if found is not None else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.loaded[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It has run."""


_parts = _Parts()
