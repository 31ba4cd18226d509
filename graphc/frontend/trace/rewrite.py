"""A function's code again, with a hook at every place where NumPy does not ask its operands.

    y = np.zeros(3) + W[ids]     ->     y = callee(np.zeros)(3) + array(array(W)[ids])
    len(y) > n                   ->     compared(callee(len)(y)) > compared(n)

Names, globals, cells, defaults, lines and columns stay those of the user's function: only calls,
subscripts that are read and operands go through the hooks (see `trace/hooks.py`), which are
inert unless a trace is active.  The code is compiled from the function's source, which is taken
for its source only if it compiles to the very code the function has.
"""

from __future__ import annotations

import ast
import copy
import linecache
import warnings
from collections.abc import Callable, Iterator
from inspect import CO_NESTED
from types import CellType, CodeType, FunctionType
from typing import Any

from graphc.base.record import record
from graphc.frontend.trace.class_patterns import as_conditions

CALLEE, ARRAY, COMPARED = HOOKS = "graphc_callee", "graphc_array", "graphc_compared"
_FLAGS = 0x1FF0000 | 0x80000  # `from __future__ import ...`, as compile() takes them
_PLAIN_OPERANDS = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set)
_IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# The imports of its module's scope, a definition, and the name of the class around it.
_Found = tuple[list[ast.stmt], Definition, str | None]


# ---------------------------------------------------------------------------------------- hooks


class _Hooks(ast.NodeTransformer):
    """Puts the hooks into the body of a function."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Name) and node.func.id == "super"):
            node.func = _hooked(CALLEE, node.func)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = _operand(node.value)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        node.left, node.right = _operand(node.left), _operand(node.right)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            node.operand = _operand(node.operand)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if not any(isinstance(op, _IDENTITY) for op in node.ops):
            node.left, *node.comparators = [
                _operand(operand, COMPARED) for operand in (node.left, *node.comparators)
            ]
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        node.guard = self.visit(node.guard) if node.guard else None
        as_conditions(node, lambda callee: _hooked(CALLEE, callee))
        node.body = [self.visit(statement) for statement in node.body]
        return node


def _hooked(name: str, node: ast.expr) -> ast.expr:
    hook = ast.copy_location(ast.Name(name, ast.Load()), node)
    return ast.copy_location(ast.Call(hook, [node], []), node)


def _operand(node: ast.expr, hook: str = ARRAY) -> ast.expr:
    return node if isinstance(node, _PLAIN_OPERANDS) else _hooked(hook, node)


# ---------------------------------------------------------------------------------------- source


@record(frozen=True)
class _Source:
    """A file's lines, its syntax tree and the imports of its module scope.

    The compiler calls a name that the module imports in another way than an object's method.
    """

    lines: list[str]
    tree: ast.Module
    imports: list[ast.stmt]


_PARSED: dict[str, _Source] = {}


def _parsed(filename: str, module_globals: dict[str, Any]) -> _Source | None:
    """A file, or text that linecache knows by this name; None where there is none."""
    lines = linecache.getlines(filename, module_globals)
    known = _PARSED.get(filename)
    if known is not None and known.lines is lines:
        return known
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    made = _PARSED[filename] = _Source(lines, tree, list(_imports(tree)))
    return made


def _found_alone(code: CodeType, module_globals: dict[str, Any]) -> _Found | None:
    """A definition as it stands in its own lines, for which a long file need not be parsed.

    None where these cannot be told.
    """
    lines = linecache.getlines(code.co_filename, module_globals)
    first = code.co_firstlineno
    block = lines[first - 1 : _end(lines, first, max(_lines_of(code), default=0))]
    if not block or code.co_name == "<lambda>":
        return None
    inside = block[0][:1].isspace()  # of a class or a function: it stays as far to the right
    before = "\n" * (first - 2) + "if True:\n" if inside else "\n" * (first - 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (node,) = ast.parse(before + "".join(block)).body
            imports = [*_imports(ast.parse("".join(_import_lines(lines))))]
    except (SyntaxError, ValueError):
        return None
    if isinstance(node, ast.If):
        node = node.body[0]
    if not isinstance(node, Definition):
        return None
    return imports, node, _class_of(code.co_qualname)


def _import_lines(lines: list[str]) -> Iterator[str]:
    """The lines of imports that stand at the left, which may go on within brackets."""
    goes_on = False
    for line in lines:
        if goes_on or line.startswith(("import ", "from ")):
            yield line
            goes_on = ")" not in line and (goes_on or "(" in line)


def _lines_of(code: CodeType) -> Iterator[int]:
    """The lines of what a function runs, and of what is defined in it."""
    yield from (line for _, _, line in code.co_lines() if line is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines_of(constant)


def _end(lines: list[str], first: int, last: int) -> int:
    """Where a definition ends whose last line of code is known: expressions may go on below."""
    own = len(lines[first - 1]) - len(lines[first - 1].lstrip()) if first <= len(lines) else 0
    while last < len(lines):
        text = lines[last].lstrip()
        if text and text[0] not in ")]}" and len(lines[last]) - len(text) <= own:
            break
        last += 1
    return last


def _class_of(title: str) -> str | None:
    """The innermost class around what has this qualified name."""
    *around, _ = title.split(".")
    after = [*around[1:], ""]
    names = [n for n, then in zip(around, after) if "<locals>" not in (n, then)]
    return names[-1] if names else None


def _imports(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.stmt | ast.ExceptHandler) and not isinstance(
            child, Definition | ast.ClassDef
        ):
            yield from _imports(child)


def _first_line(node: Any) -> int:
    lines: list[int] = [part.lineno for part in (*getattr(node, "decorator_list", ()), node)]
    return min(lines)


def _definitions(
    node: ast.AST, line: int, name: str, owner: str | None = None
) -> Iterator[tuple[Definition, str | None]]:
    """The functions of this name that begin on a line, each with the class around it, if any."""
    for child in ast.iter_child_nodes(node):
        end = getattr(child, "end_lineno", None)
        if end is not None and not _first_line(child) <= line <= end:
            continue
        is_here = isinstance(child, Definition) and _first_line(child) == line
        if is_here and getattr(child, "name", "<lambda>") == name:
            yield child, owner  # type: ignore[misc]
        inner = child.name if isinstance(child, ast.ClassDef) else owner
        yield from _definitions(child, line, name, inner)


# ---------------------------------------------------------------------------------------- code


def _compiled(found: _Found, code: CodeType, hooks: bool) -> CodeType:
    """The code of a function that stands where `code` stood: the same cells, mangling and lines."""
    imports, node, owner = found
    module = ast.Module([*imports, _around(_bare(node, hooks), owner, code)], [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: CodeType = compile(
            ast.fix_missing_locations(module),
            code.co_filename,
            "exec",
            code.co_flags & _FLAGS,
            True,
        )
    for _ in range(2 if owner is None else 3):
        made = next(c for c in made.co_consts if isinstance(c, CodeType))
    return made.replace(co_flags=made.co_flags & ~CO_NESTED | code.co_flags & CO_NESTED)


def _bare(node: Definition, hooks: bool) -> ast.stmt:
    """The definition without what belongs to the code around it: defaults, decorators, types."""
    body: Any = node.body
    if hooks:
        body = [_copy_hooked(s) for s in body] if isinstance(body, list) else _copy_hooked(body)
    fields = {"args": _without_values(node.args), "body": body}
    if isinstance(node, ast.Lambda):
        return ast.copy_location(ast.Expr(_like(node, **fields)), node)
    # A definition begins at its first decorator; what that is does not matter here.
    marks = [ast.copy_location(ast.Constant(None), d) for d in node.decorator_list]
    made: ast.stmt = _like(node, **fields, decorator_list=marks, returns=None, type_params=[])
    return made


def _around(inner: ast.stmt, owner: str | None, code: CodeType) -> ast.stmt:
    """A function that defines another one in the class and with the cells that it had."""
    free = [n for n in code.co_freevars if n not in HOOKS]
    bound = [f"{name} = " for name in free]
    own = owner or getattr(inner, "name", None)
    if own is not None and own not in free:  # the definition must not become a cell
        bound.insert(0, f"global {own}; ")
    lines = [f"def outer({', '.join(HOOKS)}):", f"  {''.join(bound)}None"]
    if owner is not None:
        lines += [f"  class {owner}:", "    pass"]
    made: Any = ast.parse("\n".join(lines)).body[0]
    block = made.body[-1] if owner is not None else made
    block.body = [*block.body[:-1], inner] if owner is not None else [*block.body, inner]
    return made  # type: ignore[no-any-return]


def _like(node: Any, **fields: Any) -> Any:
    """A syntax node with some of its fields changed."""
    return type(node)(**{**node.__dict__, **fields})


def _copy_hooked(node: ast.AST) -> ast.AST:
    return _Hooks().visit(copy.deepcopy(node))  # type: ignore[no-any-return]


def _without_values(arguments: ast.arguments) -> ast.arguments:
    """Parameters without defaults and annotations, which belong to the code around a function."""

    def bare(given: Any) -> Any:
        return None if given is None else _like(given, annotation=None)

    return ast.arguments(
        [bare(a) for a in arguments.posonlyargs],
        [bare(a) for a in arguments.args],
        bare(arguments.vararg),
        [bare(a) for a in arguments.kwonlyargs],
        [None for _ in arguments.kwonlyargs],
        bare(arguments.kwarg),
        [],
    )


def _is_source(plain: CodeType, code: CodeType) -> bool:
    """Whether a code object comes from the source that `plain` was compiled from.

    pytest compiles `assert` to code of its own; nothing else may differ then.
    """
    if plain == code:
        return True
    rewritten = "@pytest_ar" in code.co_names
    return rewritten and set(plain.co_varnames) <= set(code.co_varnames)


def _renamed(made: CodeType, old: str, new: str) -> CodeType:
    """Code whose qualified names, and those of what it holds, are as the user's."""
    constants = tuple(
        _renamed(c, old, new) if isinstance(c, CodeType) else c for c in made.co_consts
    )
    title = new + made.co_qualname[len(old) :]
    return made.replace(co_consts=constants, co_qualname=title)


_CODES: dict[CodeType, CodeType | None] = {}


def hooked_code(function: FunctionType) -> CodeType | None:
    """The code of a function with the hooks in it; None where its source cannot be had."""
    code = function.__code__
    if any(hook in code.co_freevars for hook in HOOKS):
        return code
    try:
        return _CODES[code]
    except KeyError:
        made = _CODES[code] = _find(function, code)
        return made


def _find(function: FunctionType, code: CodeType) -> CodeType | None:
    for found in _candidates(code, function.__globals__):
        try:
            if _is_source(_compiled(found, code, False), code):
                made = _compiled(found, code, True)
                return _renamed(made, made.co_qualname, code.co_qualname)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def _candidates(code: CodeType, module_globals: dict[str, Any]) -> Iterator[_Found]:
    """What may be the source of a function."""
    alone = _found_alone(code, module_globals)
    if alone is not None:
        yield alone
    source = _parsed(code.co_filename, module_globals)
    if source is not None:
        for node, owner in _definitions(source.tree, code.co_firstlineno, code.co_name):
            yield source.imports, node, owner


def rebound(
    function: FunctionType, code: CodeType, hooks: dict[str, Callable[..., Any]]
) -> FunctionType:
    """A function of other code with the same globals, cells, defaults and attributes."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    closure = tuple(
        cells[n] if n in cells else CellType(hooks[n]) if n in hooks else CellType()
        for n in code.co_freevars
    )
    made = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__doc__ = function.__qualname__, function.__doc__
    made.__module__, made.__annotations__ = function.__module__, function.__annotations__
    return made
