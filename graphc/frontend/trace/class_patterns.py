"""`case int():` asks a class by name where no hook is; here it becomes a condition, which is asked.

    case int(k): ...             ->     case m if isinstance(m, int) and ((k := m) is m): ...
    case (int() | None, 3): ...  ->     case (m, 3) if isinstance(m, int) or m is None: ...
    case ndarray(ndim=2): ...    ->     case m if isinstance(m, ndarray) and hasattr(m, "ndim") and
                                            m.ndim == 2: ...

So open sizes are ints and traced arrays NumPy's arrays, as for `isinstance`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

Hooked = Callable[[ast.expr], ast.expr]


def as_conditions(case: ast.match_case, hooked: Hooked) -> None:
    """Move the classes of a case's pattern into its guard; what a class takes apart stays there."""
    found = _Patterns(hooked)
    case.pattern = found.visit(case.pattern)
    tests = [*found.tests, *([case.guard] if case.guard is not None else [])]
    if found.tests:
        whole = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
        case.guard = ast.fix_missing_locations(ast.copy_location(whole, case.pattern))


class _Patterns(ast.NodeTransformer):
    def __init__(self, hooked: Hooked) -> None:
        self.hooked = hooked
        self.tests: list[ast.expr] = []

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.pattern:
        return self._moved(node, None) or node

    def visit_MatchAs(self, node: ast.MatchAs) -> ast.pattern:
        moved = self._moved(node.pattern, node.name) if node.pattern is not None else None
        return moved or self.generic_visit(node)  # type: ignore[return-value]

    def visit_MatchOr(self, node: ast.MatchOr) -> ast.pattern:
        return self._moved(node, None) or node

    def _moved(self, node: ast.pattern | None, name: str | None) -> ast.pattern | None:
        """A name in the place of a pattern whose test is a condition; None if it is not."""
        if node is None or not any(isinstance(each, ast.MatchClass) for each in ast.walk(node)):
            return None
        here = f"graphc_match_{len(self.tests)}_{node.lineno}_{node.col_offset}"
        test = self._test(node, ast.Name(here, ast.Load()))
        if test is None:
            return None
        self.tests.append(test)
        if name is not None:
            self.tests.append(_bound(name, ast.Name(here, ast.Load())))
        return ast.copy_location(ast.MatchAs(None, here), node)

    def _test(self, node: ast.pattern, value: ast.expr) -> ast.expr | None:
        """Whether a value matches, as an expression; None of one that positions take apart."""
        match node:
            case ast.MatchSingleton():
                return ast.Compare(value, [ast.Is()], [ast.Constant(node.value)])
            case ast.MatchValue():
                return ast.Compare(value, [ast.Eq()], [node.value])
            case ast.MatchOr():
                return _joined(ast.Or(), [self._test(each, value) for each in node.patterns])
            case ast.MatchAs():
                inner = self._test(node.pattern, value) if node.pattern is not None else _true()
                bound = _bound(node.name, value) if node.name is not None else _true()
                return _joined(ast.And(), [inner, bound])
            case ast.MatchClass():
                return self._class_test(node, value)
        return None

    def _class_test(self, node: ast.MatchClass, value: ast.expr) -> ast.expr | None:
        tests: list[ast.expr | None] = [self._asked("isinstance", value, node.cls, node)]
        if node.patterns:
            is_itself = isinstance(node.cls, ast.Name) and node.cls.id in ("int", "float")
            if not is_itself or len(node.patterns) != 1:
                return None
            tests.append(self._test(node.patterns[0], value))
        for name, inner in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
            tests.append(self._asked("hasattr", value, ast.Constant(name), node))
            tests.append(self._test(inner, ast.Attribute(value, name, ast.Load())))
        return _joined(ast.And(), tests)

    def _asked(self, title: str, value: ast.expr, about: ast.expr, node: ast.AST) -> ast.expr:
        """A call of a function of Python, by its hook."""
        callee = self.hooked(ast.copy_location(ast.Name(title, ast.Load()), node))
        return ast.Call(callee, [value, about], [])


def _bound(name: str, value: ast.expr) -> ast.expr:
    """What gives a value a further name, and is true."""
    given = ast.NamedExpr(ast.Name(name, ast.Store()), value)
    return ast.Compare(given, [ast.Is()], [ast.Name(name, ast.Load())])


def _true() -> ast.expr:
    return ast.Constant(True)


def _joined(how: ast.And | ast.Or, tests: list[ast.expr | None]) -> ast.expr | None:
    """All of them, or any; None if one of them is none."""
    known = [test for test in tests if test is not None]
    if len(known) < len(tests):
        return None
    return known[0] if len(known) == 1 else ast.BoolOp(how, known)
