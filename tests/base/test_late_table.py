"""Late tables are as if all that they expect had been written, and import no more than is asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.base.late_table import LateTable, LateTableOfNumpy

TABLE: LateTable[str, int] = LateTable()
OF_NUMPY: LateTableOfNumpy[str] = LateTableOfNumpy()
SOURCES = {
    "late_first": "TABLE.update(one=1, two=2)",
    "late_second": "TABLE['three'] = TABLE['one'] + 2",
    "late_third": "import numpy as np; OF_NUMPY[np.exp] = 'exp'",
    "late_fourth": "import numpy as np; OF_NUMPY[np.tanh] = 'tanh'",
}


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What of the modules is imported; the tables expect their entries anew."""
    for name, source in SOURCES.items():
        text = f"from {__name__} import OF_NUMPY, TABLE\n{source}\n"
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    TABLE.clear()
    OF_NUMPY.clear()
    TABLE.expect({"one": "late_first", "two": "late_first", "three": "late_second"})
    OF_NUMPY.expect({"numpy.exp": "late_third", "numpy.old_name_of_tanh": "late_fourth"})
    yield lambda: sorted(SOURCES.keys() & sys.modules.keys())
    for name in SOURCES:
        sys.modules.pop(name, None)
    TABLE.forget()
    OF_NUMPY.forget()


def test_an_entry_brings_its_module_alone(loaded: Any) -> None:
    assert TABLE.get("none") is None
    assert "none" not in TABLE
    assert loaded() == []
    assert TABLE["two"] == 2
    assert loaded() == ["late_first"]
    with pytest.raises(KeyError):
        TABLE["none"]


def test_a_module_may_ask_for_what_another_writes(loaded: Any) -> None:
    assert "three" in TABLE
    assert TABLE["three"] == 3
    assert loaded() == ["late_first", "late_second"]


@pytest.mark.parametrize("whole", [list, len, dict, sorted, set, lambda t: [*t.items()]])
def test_whoever_wants_the_whole_gets_it(loaded: Any, whole: Any) -> None:
    made = whole(TABLE)
    assert (made if whole is len else len(made)) == 3
    assert loaded() == ["late_first", "late_second"]


def test_entries_come_in_the_order_in_which_they_are_expected() -> None:
    table: LateTable[str, int] = LateTable()
    table.expect({"first": "", "second": ""})
    table.forget()
    table.update(other=3, second=2, first=1)
    assert list(table) == list(table.keys()) == ["first", "second", "other"]
    assert list(table.values()) == [1, 2, 3]


def test_what_is_expected_and_not_written_is_not_there(loaded: Any) -> None:
    TABLE.expect({"four": "late_first"})
    assert "four" not in TABLE
    assert TABLE.get("four", 4) == 4


def test_functions_of_numpy_are_found_by_name_or_else_among_all(loaded: Any) -> None:
    assert OF_NUMPY.get(len) is OF_NUMPY.get(np.float32) is None
    assert loaded() == []
    assert OF_NUMPY[np.exp] == "exp"
    assert loaded() == ["late_third"]
    assert OF_NUMPY[np.tanh] == "tanh"  # whose name is another in this version
