"""Options and fixtures of the whole suite."""

from __future__ import annotations

import gc as collector
import os
import signal
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from effort import EFFORT
from hypothesis import HealthCheck, settings

import graphc as gc
from graphc.codegen.tuning import tuned

TESTS = Path(__file__).parent
# Where machine code or tuned numbers are what is tested, LLVM works as it does for users. Elsewhere
# it makes machine code of the same IR five times as fast; `make test-full` has users' everywhere.
OF_CODE = {TESTS / name for name in ("codegen", "loops", "ops/math", "runtime")}
OF_CODE |= {TESTS / "project/test_tuning.py", TESTS / "formats/onnx/test_model_cache.py"}

# No clock decides a test: Hypothesis would fail those that take longer than usual.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C works in tests and their processes, even of a run in the background of a script."""
    os.environ.setdefault("KERAS_BACKEND", "torch")  # its own choice is TensorFlow
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _share_out(config)


def _share_out(config: pytest.Config) -> None:
    """Each worker reads another part of the tests first: pytest rewrites the assertions of a file
    in the process that is the first to read it, which takes half of the time to find the tests.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != ["tests"]:
        return
    folders = [str(p) for p in sorted(TESTS.iterdir()) if any(p.glob("**/test_*.py"))]
    place = int(worker["workerid"].removeprefix("gw")) * len(folders) // worker["workercount"]
    config.args = folders[place:] + folders[:place]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All workers have the same list; what takes long comes first, so that none waits for it."""
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, item.path))


def pytest_collection_finish() -> None:
    """Modules, tests and their parameters stay: the collector need not go over them again."""
    collector.freeze()
    collector.set_threshold(500_000, 20, 50)


def pytest_sessionfinish() -> None:
    """pytest collects twice when it ends: nothing that tests have left need be gone over."""
    collector.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """As good machine code as a test needs, in the processes that it starts, too."""
    level = 2 if EFFORT > 1 or OF_CODE & {item.path, *item.path.parents} else 0
    if tuned.machine_level != level:
        tuned.machine_level = level
        os.environ["GRAPHC_TUNING"] = f"codegen.machine_level={level}"


@pytest.fixture
def frozen() -> None:
    """For tests that collect: they need not go over what earlier ones imported and compiled."""
    collector.freeze()


@pytest.fixture(autouse=True, scope="session")
def _own_cache() -> None:
    """Tests share one object-code cache of their own, so that a second run is quick."""
    folder = Path(tempfile.gettempdir()) / f"graphc-test-cache-{os.getuid()}"
    os.environ.setdefault("GRAPHC_CACHE_DIR", str(folder))
    os.environ.setdefault("GRAPHC_KEEP_MODELS", "0")  # what imports models is what is tested


_containers = count()


@pytest.fixture
def home() -> Iterator[Any]:
    """A container of variables for one test alone."""
    with gc.container(f"test_{next(_containers)}") as container:
        yield container
    container.reset()
