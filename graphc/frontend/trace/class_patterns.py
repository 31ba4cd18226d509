"""`case int():` asks a class by name where no hook is; here it becomes a condition, which is asked.

    case int(k): ...             ->     case m if isinstance(m, int) and ((k := m) is m): ...
    case (int() | None, 3): ...  ->     case (m, 3) if isinstance(m, int) or m is None: ...

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
        here = f"graphc_match_{len(self.tests)}_{node.lineno}_{node.col_offset}" if node else ""
        alternatives = node.patterns if isinstance(node, ast.MatchOr) else [node]
        tests = [self._test(each, here) for each in alternatives]
        is_class = any(isinstance(each, ast.MatchClass) for each in alternatives)
        if node is None or not is_class or any(test is None for test in tests):
            return None
        listed = [test for test in tests if test is not None]
        self.tests.append(listed[0] if len(listed) == 1 else ast.BoolOp(ast.Or(), listed))
        if name is not None:
            self.tests.append(_bound(name, here))
        return ast.copy_location(ast.MatchAs(None, here), node)

    def _test(self, node: ast.pattern | None, here: str) -> ast.expr | None:
        """Whether what has the name `here` matches, as an expression."""
        value = ast.Name(here, ast.Load())
        if isinstance(node, ast.MatchSingleton):
            return ast.Compare(value, [ast.Is()], [ast.Constant(node.value)])
        if not isinstance(node, ast.MatchClass) or node.kwd_patterns:
            return None
        asked: ast.expr = ast.Call(
            self.hooked(ast.copy_location(ast.Name("isinstance", ast.Load()), node)),
            [value, node.cls],
            [],
        )
        if not node.patterns:
            return asked
        is_itself = isinstance(node.cls, ast.Name) and node.cls.id in ("int", "float")
        inner = node.patterns[0] if is_itself and len(node.patterns) == 1 else None
        if not isinstance(inner, ast.MatchAs) or inner.pattern is not None:
            return None
        if inner.name is None:
            return asked
        return ast.BoolOp(ast.And(), [asked, _bound(inner.name, here)])


def _bound(name: str, here: str) -> ast.expr:
    """What gives a value a further name, and is true."""
    given = ast.NamedExpr(ast.Name(name, ast.Store()), ast.Name(here, ast.Load()))
    return ast.Compare(given, [ast.Is()], [ast.Name(here, ast.Load())])
