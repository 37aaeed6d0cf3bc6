"""A query in SMT-LIB 2: is there an input for which a term holds?

A query takes the functions of its terms in one of six ways. "uninterpreted": equal operands give equal results, and
nothing else is known of them; what is proved so holds for every such functions. "products": as that, and so is the
product of two words of 32 bits, of which wider products are sums. "integers": as "uninterpreted", asked of a solver
that takes words as integers. "floats": IEEE operations are those of the solver's theory. "doubles" and "bits": those on
formats are the source of the definitions, which computes with float64, whose operations are functions of which nothing
is known, or those of the theory. In all, approximate instructions and large tables stay uninterpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ptxdiff.proving import terms as t
from ptxdiff.proving.terms import Term, TermFunction

INTEGERS = "z3-integers"
"""z3 with bit-vectors as integers: it settles products and quotients by constants, and little else."""

Way = Literal["products", "integers", "uninterpreted", "doubles", "floats", "bits"]


@dataclass(frozen=True)
class Query:
    """The text of a query. variables: the widths of its inputs. exact: whether every function in it is interpreted, so
    that its model is a real input. size: the number of terms. solver: the one that is asked first."""

    text: str
    variables: Mapping[str, int]
    exact: bool
    size: int
    way: Way
    solver: str = "bitwuzla"


def ways(goals: Iterable[Term]) -> list[Way]:
    """The ways of asking that differ for these terms, the cheapest first."""
    goals = list(goals)
    used = t.functions(goals)
    possible: list[Way] = ["products"] if any(_is_wide_product(x) for x in t.ordered(goals)) else []
    if any(_is_linear(x) for x in t.ordered(goals)):
        possible.append("integers")
    possible.append("uninterpreted")
    if any(f.expand is not None for f in used):
        possible.append("doubles")
    if any(f.theory is not None or f.expand is not None for f in used):
        possible.append("floats")
    if any(f.expand is not None and f.theory is not None for f in used):
        possible.append("bits")
    return possible


def expanded(roots: Iterable[Term], all_of_them: bool) -> list[Term]:
    """Terms in which functions that the theory does not have are written by their source; `all_of_them`: or has."""

    def replaced(term: Term, args: tuple[Term, ...]) -> Term | None:
        if term.op != "apply" or term.detail.expand is None:
            return None
        if term.detail.theory is not None and not all_of_them:
            return None
        (made,) = expanded([term.detail.expand(*args)], all_of_them)
        return made

    return t.rebuilt(roots, replaced)


WORD = 32
_PRODUCT = TermFunction(f"product.{WORD}", 2 * WORD, lambda a, b: a * b, commutes=True)


def _is_wide_product(term: Term) -> bool:
    """Whether a term is a product that is hard for solvers: of two numbers of more than 16 bits."""
    return term.op == "mul" and all(
        a.maybe.bit_length() > WORD // 2 and (a.constant is None or a.constant.bit_count() > 2) for a in term.args
    )


def _is_linear(term: Term) -> bool:
    """Whether a term is a product or quotient by a constant that is hard for solvers of bits."""
    if term.op in ("udiv", "urem"):
        value = term.args[1].constant
        return value is not None and value.bit_count() > 1
    return _is_wide_product(term) and any(a.op == "const" for a in term.args)


def with_products(roots: Iterable[Term]) -> list[Term]:
    """Terms in which wide products are sums of products of words, each a function of which nothing else is known."""

    def replaced(term: Term, args: tuple[Term, ...]) -> Term | None:
        return _by_words(*args) if _is_wide_product(term) else None

    return t.rebuilt(roots, replaced)


def _by_words(a: Term, b: Term) -> Term:
    """A product, wrapping, as a sum of products of words."""
    width = a.width
    for one, other in ((a, b), (b, a)):
        if one.op == "sext":  # a negative number, read as unsigned, is too large by a power of two
            narrow = one.args[0].width
            negative = t.nonzero(t.extract(one, narrow - 1, narrow - 1))
            excess = t.ite(negative, t.shl(other, t.const(narrow, width)), t.const(0, width))
            return t.sub(_by_words(t.zext(one.args[0], width), other), excess)
    total = t.const(0, width)
    for low, first in _words(a):
        for shift, second in _words(b):
            if low + shift < width:
                one = t.apply(_PRODUCT, *sorted((first, second), key=lambda x: (x.op == "const", x.number)))
                most = t.const(first.maybe * second.maybe, one.width)
                one = t.ite(t.ult(most, one), most, one)  # a product is never more, which sums of products rely on
                wide = t.extract(one, width - 1, 0) if one.width > width else t.zext(one, width)
                total = t.add(total, t.shl(wide, t.const(low + shift, width)))
    return total


def _words(a: Term) -> list[tuple[int, Term]]:
    """The words of a number that are not zero, each with its place."""
    nonzero = []
    for low in range(0, a.width, WORD):
        word = t.zext(t.extract(a, min(low + WORD, a.width) - 1, low), WORD)
        if word.constant != 0:
            nonzero.append((low, word))
    return nonzero


def query(goal: Term, assumptions: Iterable[Term], way: Way) -> Query:
    """The query whether the goal holds for an input for which all assumptions hold."""
    roots = [goal, *assumptions]
    if way == "products":
        roots = with_products(roots)
    elif way not in ("integers", "uninterpreted"):
        roots = expanded(roots, way != "floats")
    known = t.digests(roots)

    def operands(term: Term) -> Sequence[Term]:
        """In an order that depends on what they compute alone, so that equal queries have equal texts."""
        return sorted(term.args, key=lambda a: known[a]) if term.op in t.COMMUTATIVE else term.args

    writer = _Writer(way in ("floats", "bits"), operands)
    for term in t.ordered(roots, operands):
        writer.define(term)
    lines = [*writer.lines, *(f"(assert {writer.names[root]})" for root in roots)]
    text = "\n".join(["(set-logic ALL)", *lines]) + "\n"
    # bitwuzla's theory has the usual formats alone.
    solver = "bitwuzla" if writer.formats <= _USUAL else "z3"
    if way == "integers":
        solver = INTEGERS
    return Query(text, writer.variables, writer.exact, len(writer.names), way, solver)


_USUAL = {(5, 11), (8, 24), (11, 53)}


_NAMES = {
    "not": "bvnot", "neg": "bvneg", "and": "bvand", "or": "bvor", "xor": "bvxor", "add": "bvadd", "mul": "bvmul",
    "udiv": "bvudiv", "urem": "bvurem", "shl": "bvshl", "lshr": "bvlshr", "ashr": "bvashr", "ite": "ite", "eq": "=",
    "ult": "bvult", "slt": "bvslt", "bnot": "not", "band": "and", "bor": "or",
}  # fmt: skip


def _sort(width: int) -> str:
    return f"(_ BitVec {width})" if width else "Bool"


def literal(value: int, width: int) -> str:
    """A constant."""
    return f"(_ bv{value} {width})" if width else ("true" if value else "false")


class _Writer:
    def __init__(self, interpreted: bool, operands: Callable[[Term], Sequence[Term]]) -> None:
        self.interpreted, self.operands = interpreted, operands
        self.lines: list[str] = []
        self.names: dict[Term, str] = {}
        self.variables: dict[str, int] = {}
        self.declared: set[TermFunction] = set()
        self.formats: set[tuple[int, int]] = set()
        self.exact = True

    def define(self, term: Term) -> None:
        """Give a term a name, after those of its operands."""
        name = f"t{len(self.names)}"
        args = [self.names[a] for a in self.operands(term)]
        if term.op == "const":
            self.names[term] = literal(term.detail, term.width)
            return
        if term.op == "var":
            self.variables[term.detail] = term.width
            self.lines.append(f"(declare-const {term.detail} {_sort(term.width)})")
            self.names[term] = term.detail
            return
        self.names[term] = name
        if term.op == "apply":
            self.apply(name, term, args)
            return
        if term.op == "extract":
            text = f"((_ extract {term.detail[0]} {term.detail[1]}) {args[0]})"
        elif term.op in ("zext", "sext"):
            by = term.width - term.args[0].width
            text = f"((_ {'zero' if term.op == 'zext' else 'sign'}_extend {by}) {args[0]})"
        else:
            text = f"({_NAMES[term.op]} {' '.join(args)})"
        self.lines.append(f"(define-fun {name} () {_sort(term.width)} {text})")

    def apply(self, name: str, term: Term, args: list[str]) -> None:
        function: TermFunction = term.detail
        if self.interpreted and function.theory is not None and function.format is not None:
            form = function.format
            self.formats.add((form.exponent_bits, form.significand_bits))
            size = f"{form.exponent_bits} {form.significand_bits}"
            self.lines += [
                f"(declare-const {name} {_sort(term.width)})",
                f"(define-fun {name}f () (_ FloatingPoint {size}) {function.theory(*args)})",
                f"(assert (= ((_ to_fp {size}) {name}) {name}f))",
                f"(assert (=> (fp.isNaN {name}f) (= {name} {literal(form.nan, term.width)})))",
            ]
            return
        self.exact = False
        if function.commutes:  # the smaller operand first
            first, second, *rest = args
            self.lines += [
                f"(define-fun {name}o () Bool (bvult {second} {first}))",
                f"(define-fun {name}a () {_sort(term.args[0].width)} (ite {name}o {second} {first}))",
                f"(define-fun {name}b () {_sort(term.args[1].width)} (ite {name}o {first} {second}))",
            ]
            args = [f"{name}a", f"{name}b", *rest]
        symbol = f"|{function.name}|"
        if function not in self.declared:
            self.declared.add(function)
            sorts = " ".join(_sort(a.width) for a in term.args)
            self.lines.append(f"(declare-fun {symbol} ({sorts}) {_sort(term.width)})")
        self.lines.append(f"(define-fun {name} () {_sort(term.width)} ({symbol} {' '.join(args)}))")
