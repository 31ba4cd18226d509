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

import graphc as gc


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def pytest_configure() -> None:
    """Ctrl-C works in tests and their processes, even of a run in the background of a script."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Modules, tests and their parameters stay: the collector need not go over them again."""
    collector.freeze()
    collector.set_threshold(500_000, 20, 50)


@pytest.fixture
def frozen() -> None:
    """For tests that collect: they need not go over what earlier ones imported and compiled."""
    collector.freeze()


@pytest.fixture(autouse=True, scope="session")
def _own_cache() -> None:
    """Tests share one object-code cache of their own, so that a second run is quick."""
    folder = Path(tempfile.gettempdir()) / f"graphc-test-cache-{os.getuid()}"
    os.environ.setdefault("GRAPHC_CACHE_DIR", str(folder))


_containers = count()


@pytest.fixture
def home() -> Iterator[Any]:
    """A container of variables for one test alone."""
    with gc.container(f"test_{next(_containers)}") as container:
        yield container
    container.reset()
