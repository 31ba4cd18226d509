"""What failing can be: a result that differs, a crash, or the exit status of a command."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from graphc.errors import GraphError
from graphc.frontend.diagnosis.kernels import run_compiled
from graphc.frontend.files.gir_files import save
from graphc.passes.compare import first_difference, kind_of, message_of
from graphc.passes.trial import Trial
from graphc.runtime.files.files import npz, write_atomically

Fails = Callable[[Trial], bool]
_EXIT = re.compile(r"exit (\d{1,3}) of (.+)", re.DOTALL)
SECONDS = 120.0  # that one try may take


def test_for(when: str, trial: Trial) -> Fails:
    """What `--when` means: "differs", "crashes", or "exit N of COMMAND". Raises GraphError.

    In a command {model} stands for the graph's file and {feed} for the .npz file of its arguments.
    """
    if when == "differs":
        return differs
    if when == "crashes":
        known = crash(trial)
        return lambda candidate: bool(known) and crash(candidate) == known
    command = _EXIT.fullmatch(when)
    if command is None or not shlex.split(command[2]):
        raise GraphError(
            f"--when {when} is not understood",
            hint='differs, crashes or "exit 3 of graphc run {model} --feed {feed} --check"',
        )
    status, words = int(command[1]), shlex.split(command[2])
    return lambda candidate: exit_status(candidate, words) == status


test_for.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for a test


def differs(trial: Trial) -> bool:
    """Does what is compiled compute something else than the reference interpreter?"""
    wanted = trial.interpret(trial.value)
    return first_difference(run_compiled(trial), wanted, trial.tolerances) is not None


def crash(trial: Trial) -> str:
    """How compiling or running it fails, in a process of its own; "" if it does not.

    What the reference interpreter refuses as well is no crash.
    """
    try:
        trial.interpret(trial.value)
    except Exception:  # noqa: BLE001  whatever it says
        return ""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            signal.alarm(int(SECONDS))
            run_compiled(trial)
        except BaseException as error:  # noqa: BLE001  that is what is looked for
            os.write(writer, kind_of(message_of(error)).encode()[:4000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return told or (f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "")


def exit_status(trial: Trial, words: list[str]) -> int | None:
    """What a command exits with for the files of a trial; None if it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        model, feed = Path(folder) / "model.gir", Path(folder) / "feed.npz"
        write(trial, model, feed)
        names = {"{model}": str(model), "{feed}": str(feed)}
        given = [_filled(word, names) for word in words]
        try:
            done = subprocess.run(given, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return None
        except OSError as error:
            raise GraphError(f"cannot run {words[0]}: {error.strerror}") from None
        return done.returncode


def _filled(word: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(name, value)
    return word


def write(trial: Trial, model: Path, feed: Path) -> None:
    """The files of a trial: its graph and its arguments."""
    save(model, trial.value)
    names = [p.attrs["name"] for p in trial.value.params]
    write_atomically(feed, [npz(dict(zip(names, trial.arrays)))])
