"""graphc convert --check: weights there and back."""

from __future__ import annotations

from typing import Any

import pytest

from graphc.cli import main
from graphc.learn.nn import conversion_checks
from graphc.learn.nn.state_dict import state_dict


@pytest.mark.slow
def test_all_layers_beside_whatever_is_installed() -> None:
    found = list(conversion_checks.check_conversions(trials=2))
    assert all(outcome.passed for outcome in found), found
    assert len({outcome.name for outcome in found}) == 9
    judged = {outcome.beside for outcome in found if not outcome.told}
    assert "interpreter" in judged


def test_a_framework_that_does_not_import_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}'s backend")

    conversion_checks._absent.cache_clear()
    monkeypatch.setattr(conversion_checks, "import_module", missing)
    monkeypatch.setattr(conversion_checks, "find_spec", lambda name: name)
    told = {o.beside: o.told for o in conversion_checks.check_conversions(trials=1)}
    conversion_checks._absent.cache_clear()
    assert "backend" in told["keras"] and "backend" in told["torch"]
    assert not told["interpreter"]


def test_a_wrong_conversion_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="weights go to PyTorch")
    part = state_dict

    def swapped(layer: Any, *given: Any) -> Any:
        made = part(layer, *given)
        return {k: v[::-1] for k, v in made.items()} if "Dense" in repr(layer) else made

    monkeypatch.setattr(conversion_checks, "state_dict", swapped)
    monkeypatch.setattr(conversion_checks, "TRIALS", 1)
    monkeypatch.setattr(conversion_checks, "_absent", {"torch": "", "keras": "left out"}.get)
    with pytest.raises(SystemExit) as ended:
        main(["convert", "--check"])
    assert ended.value.code == 3
    assert "DIFFERENT" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["convert", "--check", "m.onnx"])
    assert ended.value.code == 2
