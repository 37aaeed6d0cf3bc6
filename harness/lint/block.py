"""The input of a rule: a snippet with its tree, its constraints and its bound program, each where it exists."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ptxdiff.emulator import AsmBlock, Constraint, PtxError, assemble, parse_constraints
from ptxdiff.emulator.text import (
    Address,
    CodeBlock,
    Declaration,
    Instruction,
    Name,
    Operand,
    Pair,
    Source,
    Vector,
    declarations,
    instructions,
    parse_asm,
    spelled,
)
from ptxdiff.lint.snippet import Snippet


@dataclass(frozen=True)
class NumberedForm:
    """Text with `$0` and constraints without `+`. `moves`: (offset in this text, offset in the author's), ascending."""

    text: str
    constraints: str
    moves: tuple[tuple[int, int], ...] = field(default=())

    def original(self, offset: int) -> int:
        """The offset in the author's text."""
        at = bisect_right(self.moves, (offset, 1 << 62)) - 1
        if at < 0:
            return offset
        here, there = self.moves[at]
        return there + offset - here


def triton_form(snippet: Snippet) -> NumberedForm:
    """The snippet in Triton's spelling. Only the convention "cuda" is spelled differently."""
    try:
        form = spelled(snippet.asm, snippet.constraints, snippet.convention, lenient=True)
    except PtxError:
        return NumberedForm(snippet.asm, snippet.constraints)  # the rule `constraints` says why
    return NumberedForm(form.text, form.constraints, form.moves)


ASSUMED = 1
"""The assumed value of an operand under constraint `n` or `i`, whose real value is unknown."""


class LintedBlock:
    """A snippet for rules. Everything is in Triton's form (`$0`), whatever convention the author used.

    `tree`, `source`: the parsed text; None if it does not parse, and `parse_error` says why (the rule `syntax` reports
    it). An operand number that does not exist is no parse error here. `parsed`: the constraints; None if they cannot be
    parsed, and `constraint_error` says why (the rule `constraints` reports it). `program`: the block bound for any
    target by `ptxdiff.emulator`; None if it cannot be bound, and `bind_error` says why: memory, barriers, other
    threads, PTX that the emulator does not know, or a mistake. Operands under `n` or `i` are bound to `ASSUMED`;
    `has_constants` is then true. `siblings`: all blocks of the same file, including this one. A rule that is not sure
    reports nothing.
    """

    def __init__(self, snippet: Snippet, siblings: Sequence[LintedBlock] | None = None) -> None:
        self.snippet = snippet
        self.siblings: Sequence[LintedBlock] = (self,) if siblings is None else siblings
        self.form: NumberedForm = triton_form(snippet)
        self.text = self.form.text
        self.constraints = self.form.constraints
        self.kept: dict[str, Any] = {}
        """A cache of values that rules share: the first rule that needs one computes it."""

    @cached_property
    def _constraints(self) -> tuple[Constraint, ...] | PtxError:
        try:
            return parse_constraints(self.constraints)
        except PtxError as error:
            return error

    @property
    def parsed(self) -> tuple[Constraint, ...] | None:
        """The constraints, without clobbers."""
        return self._constraints if isinstance(self._constraints, tuple) else None

    @property
    def constraint_error(self) -> PtxError | None:
        """Why the constraints cannot be parsed."""
        return self._constraints if isinstance(self._constraints, PtxError) else None

    @cached_property
    def inserts_text(self) -> bool:
        """Whether an operand of a CUDA statement is text under `"C"`, which nobody knows here."""
        letters = self.snippet.constraints.split(",")
        return self.snippet.convention == "cuda" and any(w.strip().lstrip("=+&") == "C" for w in letters)

    @cached_property
    def _tree(self) -> tuple[CodeBlock, Source] | PtxError:
        if self.inserts_text:
            return PtxError("an operand inserts text that is not known here")
        try:
            return parse_asm(self.text, None, dict(self.constants))
        except PtxError as error:
            return error

    @property
    def tree(self) -> CodeBlock | None:
        """The parsed text."""
        return self._tree[0] if isinstance(self._tree, tuple) else None

    @property
    def source(self) -> Source | None:
        """Converts a node's offset to a place in the text."""
        return self._tree[1] if isinstance(self._tree, tuple) else None

    @property
    def parse_error(self) -> PtxError | None:
        """Why the text does not parse; None also for a text that is not known."""
        return self._tree if isinstance(self._tree, PtxError) and not self.inserts_text else None

    @cached_property
    def constants(self) -> tuple[tuple[int, int], ...]:
        """Number and assumed value of each operand under constraint `n` or `i`."""
        return tuple((n, ASSUMED) for n, c in enumerate(self.parsed or ()) if c.immediate)

    @property
    def has_constants(self) -> bool:
        """Whether results depend on a constant whose value is not known."""
        return bool(self.constants)

    @cached_property
    def _assembled(self) -> AsmBlock | PtxError:
        try:
            return assemble(self.text, self.constraints, None, (), False, self.constants)
        except PtxError as error:
            return error

    @property
    def program(self) -> AsmBlock | None:
        """The bound block: its program and the register slot of each operand."""
        return self._assembled if isinstance(self._assembled, AsmBlock) else None

    @property
    def bind_error(self) -> PtxError | None:
        """Why the block does not bind."""
        return self._assembled if isinstance(self._assembled, PtxError) else None

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in the order of the text; none if it does not parse."""
        return tuple(instructions(self.tree)) if self.tree else ()

    @cached_property
    def declarations(self) -> tuple[Declaration, ...]:
        """All declarations in the order of the text."""
        return tuple(declarations(self.tree)) if self.tree else ()

    @property
    def outputs(self) -> range:
        """The numbers of the output operands."""
        return range(sum(c.output for c in self.parsed or ()))

    @property
    def inputs(self) -> range:
        """The numbers of the input operands, including tied ones."""
        return range(len(self.outputs), len(self.parsed or ()))

    def place(self, offset: int) -> int:
        """The offset in the snippet's own text for a node's offset, for `Found.at`."""
        return self.form.original(self.source.original(offset) if self.source else offset)

    def place_of(self, error: PtxError) -> int | None:
        """The offset in the snippet's own text at which an error points; None if it has no place."""
        if not error.line:
            return None
        lines = self.text.split("\n")
        return self.form.original(sum(len(line) + 1 for line in lines[: error.line - 1]) + error.column - 1)

    def statement(self, offset: int) -> str:
        """The text of the statement at a node's offset, on one line, in the author's own spelling."""
        start = self.place(offset)
        text = self.snippet.asm
        end = text.find(";", start)
        return " ".join(text[start : end + 1 if end >= 0 else len(text)].split())

    def spelled(self, number: int) -> str:
        """An operand in the author's spelling: `$0`, or `%0` in CUDA."""
        return f"{'%' if self.snippet.convention == 'cuda' else '$'}{number}"


def names(operand: Operand | None) -> Iterator[Name]:
    """The names within an operand, in order."""
    if isinstance(operand, Name):
        yield operand
    elif isinstance(operand, Pair):
        yield from names(operand.first)
        yield from names(operand.second)
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from names(element)
    elif isinstance(operand, Address):
        yield from names(operand.base)
        for element in operand.extra:
            yield from names(element)
