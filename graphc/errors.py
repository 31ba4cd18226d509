"""The error family of graphc: one root, short messages, the user's own file and line.

Every failure caused by input (a model function, a saved graph, a feed) is a `GraphError`.
Anything else that escapes is a bug in graphc.
"""

from __future__ import annotations

from typing import Any

MAX_LINES = 12
MAX_COLUMNS = 400


def plain(line: str) -> str:
    """A line that may hold names from a file: no control characters, no endless length."""
    return printable(line if len(line) <= MAX_COLUMNS else line[:MAX_COLUMNS] + " ...")


def printable(line: str) -> str:
    """A line with its control characters, ends of lines among them, written as Python does."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class GraphError(Exception):
    """What is wrong, where in the user's program, and what to do next.

    `message` says what is wrong in one sentence.  `details` are further lines (the node, its
    inputs with types).  `location` is ("file", line) in the user's code.  `hint` says what to do
    next. The printed form never exceeds `MAX_LINES` lines.
    """

    def __init__(
        self,
        message: str,
        *,
        details: tuple[str, ...] = (),
        location: tuple[str, int] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.location = location
        self.hint = hint

    def at(self, location: tuple[str, int] | None, details: tuple[str, ...] = ()) -> GraphError:
        """The same error with the place it comes from, where it has none yet."""
        self.location = self.location or location
        self.details = self.details or details
        return self

    def __str__(self) -> str:
        lines = self.message.split("\n")
        if self.location is not None:
            lines.append(f"  at {self.location[0]}:{self.location[1]}")
        lines += [f"  {detail}" for detail in self.details]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        if len(lines) > MAX_LINES:
            lines = [*lines[: MAX_LINES - 1], "  ..."]
        return "\n".join(map(plain, lines))


_FILE = ("errno", "strerror", "filename", "filename2")  # what an OSError knows
_OF_SEVERAL: dict[tuple[type, ...], type[GraphError]] = {}


def also(error: GraphError, *kinds: type[Exception], source: Exception | None = None) -> GraphError:
    """The error, of a class that is also these of Python's; of an OSError it knows the file, too.

    except IndexError:      catches also(TypeRuleError("..."), IndexError)
    """
    more = tuple(kind for kind in kinds if not isinstance(error, kind))
    if not more:
        return error
    own, before = getattr(error, "parts", (type(error), ()))
    known = {name: getattr(source, name) for name in _FILE if isinstance(source, OSError)}
    return _of_several(own, (*before, *more), {**vars(error), **known})


def _of_several(
    own: type[GraphError], others: tuple[type[Exception], ...], known: dict[str, Any]
) -> GraphError:
    key = (own, *others)
    if key not in _OF_SEVERAL:
        names = {"__module__": own.__module__, "__reduce__": _pickled, "parts": (own, others)}
        try:
            _OF_SEVERAL[key] = type(own.__name__, (own, *others), names)
        except TypeError:  # of another layout in memory
            _OF_SEVERAL[key] = own
    made = _OF_SEVERAL[key](known["message"])
    for name, value in known.items():
        setattr(made, name, value)
    return made


def _pickled(error: Any) -> tuple[Any, ...]:
    known = {name: getattr(error, name) for name in _FILE if isinstance(error, OSError)}
    return _of_several, (*error.parts, {**vars(error), **known})


# What the rules of ops raise on numbers that no array has: too large, zero where none may be ...
UNCOMPUTABLE = (ArithmeticError, RecursionError)


def uncomputable(what: str, error: BaseException) -> GraphError:
    """The error of a rule or pass that met such numbers: they come from the graph."""
    reason = "it nests too deeply" if isinstance(error, RecursionError) else str(error)
    return GraphError(f"{what} cannot be computed: {reason}")


class TypeRuleError(GraphError):
    """An op was given operands or attributes that its type rule refuses."""


class TraceError(GraphError):
    """The traced Python function did something that has no meaning in a graph."""


class ParseError(GraphError):
    """Graph text that does not follow the grammar; the message holds line, column and a caret."""


class VerifyError(GraphError):
    """A graph breaks an invariant; the message names the stage that broke it."""


class FeedError(GraphError):
    """Arguments or feeds of the wrong name, number, dtype or shape."""


class ArgumentError(FeedError, TypeError):
    """A call that does not fit the arguments of a function: a TypeError, too, as Python has it."""


class LimitError(GraphError):
    """A budget on memory, time, size or folding would be exceeded."""


class RunError(GraphError):
    """A kernel reported a failure at run time (index out of range, non-finite value, cancelled)."""


class OutOfRangeError(RunError, IndexError):
    """An index or a label that is not there: an IndexError, too, as NumPy raises one."""


class SizeError(RunError, ValueError):
    """A run's data decides a size, and there is none for it: a ValueError, too, as NumPy has it."""


class EndOfData(RunError):
    """A queue that is closed, or a reader behind its last epoch, was asked for more."""


class CheckpointError(GraphError):
    """A checkpoint that cannot be written, is damaged, or does not fit what it is restored to."""


INDEX = 1  # the status of a kernel that was given an index out of range
CUSTOM = 4  # the status of a custom op that returned one of these, or what is no status
RAISED = 2**31 - 1  # the status of a kernel whose Python function raised an exception
SINGULAR, INDEFINITE, UNCONVERGED = RAISED - 1, RAISED - 2, RAISED - 3  # of linear algebra
CUSTOM_END = UNCONVERGED  # a custom op's own statuses lie between CUSTOM and here
STATUS = {
    INDEX: "index out of range",
    2: "non-finite value",
    3: "cancelled",
    CUSTOM: "custom op failed",
    SINGULAR: "singular matrix",
    INDEFINITE: "matrix is not positive definite",
    UNCONVERGED: "decomposition does not converge",
    RAISED: "custom op raised an exception, such as an index out of range",
}


class GraphHint(UserWarning):
    """Something that works, but would work better another way."""
