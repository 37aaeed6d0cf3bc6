"""Mechanical mistakes in references: change one node of a function's Python syntax tree, and replace its code.

Every function of `references` and of the case's file that the reference calls, directly or indirectly, may be mutated.
Functions of `ptxdiff.references.formats` and `ptxdiff.references.codes` are excluded, because the judge itself uses
them.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

_EXCLUDED = ("ptxdiff.references.formats", "ptxdiff.references.codes")


@dataclass(frozen=True)
class SourceMutant:
    """One mistake in one function: the operator's name, the change in words, and the code that replaces the function's.

    lines: of the file, those of the outermost expression around the change. caches: of functions that the reference
    reaches, which may hold what the function returned before.
    """

    operator: str
    change: str
    function: types.FunctionType
    code: types.CodeType
    lines: range
    caches: tuple[Any, ...] = ()


@contextlib.contextmanager
def swapped(mutant: SourceMutant) -> Iterator[None]:
    """Give the function the mutant's code within the context. This affects every holder of the function."""
    before = mutant.function.__code__
    mutant.function.__code__ = mutant.code
    _clear(mutant.caches)
    try:
        yield
    finally:
        mutant.function.__code__ = before
        _clear(mutant.caches)


def _clear(caches: tuple[Any, ...]) -> None:
    for one in caches:
        one.cache_clear()


def caches(reference: Callable[..., Any]) -> tuple[Any, ...]:
    """The cached functions (`functools.cache`) that a reference reaches, and itself if it is one."""
    values = [reference, *(v for f in functions(reference) for v in _named(f))]
    return tuple({id(v): v for v in values if callable(getattr(v, "cache_clear", None))}.values())


def functions(reference: Callable[..., Any]) -> list[types.FunctionType]:
    """The functions that a reference reaches: its own first, then those that it names, breadth first."""
    by_identity: dict[int, types.FunctionType] = {}
    own_module = next((f.__module__ for f in _own(reference)), "")
    waiting = list(_own(reference))
    while waiting:
        function = waiting.pop(0)
        name = function.__module__ or ""
        followed = name == own_module or name.startswith("ptxdiff.references.")
        if id(function) in by_identity or name in _EXCLUDED or not followed:
            continue
        by_identity[id(function)] = function
        for value in _named(function):
            waiting += _own(value)
    return list(by_identity.values())


def _own(value: Any) -> Iterator[types.FunctionType]:
    """The Python functions behind a callable: a partial's, a cached function's, those of `either` and `through=`."""
    if isinstance(value, functools.partial):
        yield from _own(value.func)
        for argument in (*value.args, *value.keywords.values()):
            yield from _own(argument)
    elif isinstance(value, types.FunctionType):
        parts = (*getattr(value, "alternatives", ()), *getattr(value, "made_of", ()))
        if not parts:
            yield value
        for part in parts:
            yield from _own(part)
    elif callable(inner := getattr(value, "__wrapped__", None)):
        yield from _own(inner)


def _named(function: types.FunctionType) -> Iterator[Any]:
    """The values that a function's code names: globals, attributes of modules among them, and its closure's values."""
    names = dict.fromkeys(_names(function.__code__))  # not a set, whose order differs from process to process
    values = [function.__globals__[n] for n in names if n in function.__globals__]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # the cell is empty
            values.append(cell.cell_contents)
    for value in values:
        yield value
        if isinstance(value, types.ModuleType):
            yield from (vars(value)[n] for n in names if n in vars(value))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


# ---- Mutants ---------------------------------------------------------------------------------------------


Lines = Collection[tuple[types.CodeType, int]]
"""Lines of files, each with the code of the function that it belongs to."""


def mutants(reference: Callable[..., Any], lines: Lines | None = None) -> Iterator[SourceMutant]:
    """Every mutant of a reference, its own function's first. Functions without source code give none.

    lines: the lines in which mutants are made; None for all.
    """
    held = caches(reference)
    for function in functions(reference):
        for mutant in _of_function(function, lines):
            yield dataclasses.replace(mutant, caches=held)


def _of_function(function: types.FunctionType, wanted: Lines | None) -> Iterator[SourceMutant]:
    own = function.__code__  # read once: `swapped` may change it between two of the yielded mutants
    definition = _definition(function)
    if definition is None:
        return
    for path, node, around in list(_nodes(definition)):
        lines = range(around.lineno, (around.end_lineno or around.lineno) + 1)
        if wanted is not None and not any((own, n) in wanted for n in lines):
            continue
        for operator, new in _changed(node):
            if code := _compiled(function, definition, path, new):
                before, after = ast.unparse(node), ast.unparse(new)
                where = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}:{node.lineno}"
                yield SourceMutant(operator, f"{where}: {before} -> {after}", function, code, lines)


def _definition(function: types.FunctionType) -> ast.FunctionDef | ast.Lambda | None:
    """The definition of the function in its file, which may be a lambda in the middle of an expression."""
    try:
        lines, _ = inspect.findsource(function)
        tree = ast.parse("".join(lines))
    except (OSError, TypeError, SyntaxError):
        return None
    code = function.__code__
    definitions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda) and _is_of(n, code)]
    if len(definitions) > 1:  # several lambdas on one line differ in their columns
        definitions = [n for n in definitions if isinstance(n, ast.Lambda) and _spans(n.body, code)]
    return definitions[0] if len(definitions) == 1 else None


def _is_of(node: ast.FunctionDef | ast.Lambda, code: types.CodeType) -> bool:
    """Whether a code object may be a definition's, by its name and first line, which is its first decorator's."""
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    first = min((d.lineno for d in node.decorator_list), default=node.lineno)
    return node.name == code.co_name and first == code.co_firstlineno


def _spans(node: ast.expr, code: types.CodeType) -> bool:
    """Whether an expression begins and ends at the same places as a code object's instructions."""
    places = [(line, column, last, end) for line, last, column, end in code.co_positions() if end]
    begins, ends = {p[:2] for p in places}, {p[2:] for p in places}
    return (node.lineno, node.col_offset) in begins and (node.end_lineno, node.end_col_offset) == max(ends)


Path = tuple[tuple[str, int | None], ...]


def _nodes(
    definition: ast.AST, path: Path = (), around: ast.expr | None = None
) -> Iterator[tuple[Path, ast.expr, ast.expr]]:
    """The expressions of a body, each with its path from the definition and the outermost expression around it.

    Docstrings and annotations are omitted.
    """
    fields = ("body",) if not path else definition._fields
    for field in fields:
        value = getattr(definition, field, None)
        if field in ("annotation", "returns"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST) or _is_text(child):
                continue
            here = (*path, (field, index))
            whole = around or child if isinstance(child, ast.expr) else None
            if isinstance(child, ast.expr) and whole is not None:
                yield here, child, whole
            yield from _nodes(child, here, whole)


def _is_text(node: ast.AST) -> bool:
    """Whether an expression is a docstring or the text of an error."""
    return isinstance(node, ast.Raise | ast.JoinedStr) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _compiled(
    function: types.FunctionType, definition: ast.FunctionDef | ast.Lambda, path: Path, new: ast.expr
) -> types.CodeType | None:
    """The function's code with one node replaced; None if its closure would have other names."""
    holder: Any = definition
    for field, index in path[:-1]:
        holder = getattr(holder, field) if index is None else getattr(holder, field)[index]
    field, index = path[-1]
    before = _put(holder, field, index, new)
    try:
        return _code_of(function, definition)
    finally:
        _put(holder, field, index, before)


def _put(holder: Any, field: str, place: int | None, node: Any) -> Any:
    """Replace a node, and return the old one."""
    if place is None:
        before = getattr(holder, field)
        setattr(holder, field, node)
    else:
        values = getattr(holder, field)
        before, values[place] = values[place], node
    return before


def _code_of(function: types.FunctionType, definition: ast.FunctionDef | ast.Lambda) -> types.CodeType | None:
    if isinstance(definition, ast.FunctionDef):
        definition.decorator_list = []
        body: list[ast.stmt] = [definition]
    else:
        body = [ast.Expr(definition)]
    free = function.__code__.co_freevars
    # An outer function makes the names of the closure local, so that the inner one compiles to the same closure.
    around = ast.parse("def around():\n    " + "".join(f"{n} = None; " for n in free) + "pass")
    outer = around.body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body += body
    try:
        whole = compile(ast.fix_missing_locations(around), function.__code__.co_filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    codes = [c for c in _codes(whole) if c.co_name == function.__code__.co_name and c.co_name != "around"]
    return codes[0] if codes and codes[0].co_freevars == free else None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code objects within a code object, outermost first."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    yield from inner
    for c in inner:
        yield from _codes(c)


_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
}  # fmt: skip

_COMPUTED: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,), ast.FloorDiv: (ast.Mult,),
}  # fmt: skip

_WORDS = {"rn": "rz", "rz": "rn", "rm": "rp", "rp": "rm", "rna": "rn", "rs": "rn", "even": "ceil", "floor": "ceil"}

_CALLED = {"minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor", "max": "min", "min": "max",
           "round": "floor", "zeros_like": "ones_like", "amax": "amin", "is_nan": "is_infinite",
           "is_subnormal": "is_zero", "is_zero": "is_subnormal"}  # fmt: skip


def _changed(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The mutants of one expression."""
    rules = _RULES.get(type(node))
    if rules is not None:
        yield from rules(node)


def _like(node: ast.expr, **fields: Any) -> Any:
    """A copy of a node with other fields."""
    new = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _compare(node: Any) -> Iterator[tuple[str, ast.expr]]:
    for other in _COMPARED.get(type(node.ops[0]), ()):
        yield "comparison", _like(node, ops=[other(), *node.ops[1:]])


def _binary(node: Any) -> Iterator[tuple[str, ast.expr]]:
    for other in _COMPUTED.get(type(node.op), ()):
        yield "arithmetic", _like(node, op=other())
    yield "operand dropped", _like(node.left)
    if not isinstance(node.op, ast.Mult | ast.Add | ast.BitAnd | ast.BitOr | ast.BitXor):
        yield "operands swapped", _like(node, left=node.right, right=node.left)


def _unary(node: Any) -> Iterator[tuple[str, ast.expr]]:
    yield "negation dropped", _like(node.operand)


def _constant(node: Any) -> Iterator[tuple[str, ast.expr]]:
    value = node.value
    if isinstance(value, bool):
        yield "choice", ast.copy_location(ast.Constant(not value), node)
    elif isinstance(value, int):
        yield from (("constant off by one", ast.copy_location(ast.Constant(value + d), node)) for d in (1, -1))
    elif isinstance(value, float):
        yield "constant off by one", ast.copy_location(ast.Constant(value * (1 + 2.0**-20)), node)
    elif isinstance(value, str) and value in _WORDS:
        yield "rounding", ast.copy_location(ast.Constant(_WORDS[value]), node)


def _call(node: Any) -> Iterator[tuple[str, ast.expr]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "where" and len(node.args) == 3:
        condition, yes, no = node.args
        yield "special value dropped", _like(no)
        yield "special value everywhere", _like(yes)
        yield "branches swapped", _like(node, args=[condition, no, yes])
    elif len(node.args) > 1:
        yield "arguments swapped", _like(node, args=[node.args[1], node.args[0], *node.args[2:]])
    for k, keyword in enumerate(node.keywords):
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool):
            yield "option dropped", _like(node, keywords=node.keywords[:k] + node.keywords[k + 1 :])
    if name in _CALLED:
        field = "attr" if isinstance(node.func, ast.Attribute) else "id"
        yield "function", _like(node, func=_like(node.func, **{field: _CALLED[name]}))


def _conditional(node: Any) -> Iterator[tuple[str, ast.expr]]:
    yield "branches swapped", _like(node, body=node.orelse, orelse=node.body)


def _tuple(node: Any) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        yield "outputs exchanged", _like(node, elts=[node.elts[1], node.elts[0], *node.elts[2:]])


_RULES: dict[type[ast.expr], Callable[[Any], Iterator[tuple[str, ast.expr]]]] = {
    ast.Compare: _compare,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Constant: _constant,
    ast.Call: _call,
    ast.IfExp: _conditional,
    ast.Tuple: _tuple,
}

NAMES = (
    "comparison", "arithmetic", "operand dropped", "operands swapped", "negation dropped", "choice",
    "constant off by one", "rounding", "special value dropped", "special value everywhere", "branches swapped",
    "arguments swapped", "option dropped", "function", "outputs exchanged",
)  # fmt: skip
"""All operators."""
