"""One block of inline asm as its author wrote it, and findings about it: plain data."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ptxdiff.emulator.text import Convention

Severity = Literal["error", "warning", "note"]
Part = Literal["asm", "constraints"]


@dataclass(frozen=True)
class TextOrigin:
    """The origin of a text: the file, and for each character of the text its offset in the file.

    `offsets` has an entry for each character of the text, -1 for one that is not in the file (of a formatted value).
    Escapes such as `\\n` are one character of the text. `line`, `column` (from 1): the place of the call, for places
    without an offset. `last`: the line on which the call ends; `last_column`: the column after its end, 0 if not known.
    """

    path: str = ""
    line: int = 0
    column: int = 0
    offsets: tuple[int, ...] = ()
    last: int = 0
    starts: tuple[int, ...] = field(default=(), repr=False)
    """The offset of each line of the file."""
    last_column: int = 0

    def offset(self, at: int) -> int:
        """The offset in the file of a place in the text, or of the nearest character before it; -1 for none."""
        for k in range(min(at, len(self.offsets) - 1), -1, -1):
            if self.offsets[k] >= 0:
                return self.offsets[k] + (at >= len(self.offsets) and k == len(self.offsets) - 1)
        return -1

    def position(self, at: int) -> tuple[int, int]:
        """Line and column in the file, from 1, of a place in the text; those of the call if it has none."""
        offset = self.offset(at)
        if offset < 0 or not self.starts:
            return self.line, self.column
        return self._place(offset)

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def end(self, at: int, size: int) -> tuple[int, int]:
        """Line and column in the file after `size` characters of the text, as far as they stand together there."""
        first = self.offsets[at] if 0 <= at < len(self.offsets) else -1
        if first < 0 or not self.starts:
            line, column = self.position(at)
            return line, column + 1
        together = 1
        while together < size and self.offsets[at + together : at + together + 1] == (first + together,):
            together += 1
        return self._place(first + together)


@dataclass(frozen=True)
class Snippet:
    """A block of inline asm.

    asm: the text as the compiler receives it, in its convention: `$0` for "triton" and "llvm", `%0` for "cuda".
    constraints: separated by commas, outputs first, clobbers as `~{memory}`. For a CUDA statement the operands in
    order, including `+r`: `asm("..." : "=r"(y), "+r"(z) : "r"(x) : "memory")` has `=r,+r,r,~{memory}`. pure: whether
    the block is declared free of side effects: True for `is_pure=True`, `has_side_effects=False` or an asm statement
    with outputs and without volatile; None if it is not known. pack: elements of an invocation; None if it is not
    known. 1 for "llvm" and "cuda". outputs, inputs: names of dtypes, as for `ptxdiff.emulate`, one for each result or
    argument; an entry is None if the dtype is not known, the whole is None if the number is not known either. targets:
    the user's targets, such as sm_90a; empty if none were stated. function: the name of the enclosing function, or of
    the variant of a case.
    guards: conditions on the target around the call, as text; `targets=` of a variant counts as one. group: the case of
    a variant. body: the offset in the file of the enclosing C++ function's body, 0 if there is none: statements of one
    body share a scope in PTX. exact: whether its policy is exact. ftz: its policy on flushing.
    """

    asm: str
    constraints: str
    convention: Convention = "triton"
    pure: bool | None = None
    pack: int | None = 1
    outputs: tuple[str | None, ...] | None = None
    inputs: tuple[str | None, ...] | None = None
    targets: tuple[str, ...] = ()
    function: str = ""
    group: str = ""
    exact: bool | None = None
    ftz: str = ""
    guards: tuple[str, ...] = field(default=(), compare=False)
    body: int = field(default=0, compare=False)
    origin: TextOrigin = field(default_factory=TextOrigin, compare=False)
    constraints_origin: TextOrigin = field(default_factory=TextOrigin, compare=False)


@dataclass(frozen=True)
class Edit:
    """Replace `text[start:end]` of the asm or of the constraints (the snippet's own texts) by `new`."""

    part: Part
    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Fix:
    """A mechanical repair with a short description. Either all edits are applied or none."""

    words: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Found:
    """A rule's report: the place and the words. The engine adds the other fields.

    at: an offset in the part's text (`LintedBlock.place` gives it for a node of the tree); None: the whole snippet.
    message: what is wrong here, with names and numbers. instead: what to write. why, severity: only if they differ from
    the rule's.
    """

    at: int | None
    message: str
    instead: str = ""
    why: str = ""
    part: Part = "asm"
    fix: Fix | None = None
    severity: Severity | None = None


@dataclass(frozen=True)
class Finding:
    """One finding with its place.

    path, line, column: the place in the file, from 1 (path empty and 0 if there is no file). asm_line, asm_column: the
    place in the asm text, from 1; 0 if the finding is about the constraints or the whole snippet. places: line and
    column of each further place in the same file with an equal finding, ascending (see `engine.grouped`). others: the
    findings of those places. end_line, end_column: the place after the last character that the finding is about, 0 if
    it is not known: the word at the place, or the whole call.
    """

    rule: str
    severity: Severity
    message: str
    why: str
    instead: str
    path: str
    line: int
    column: int
    asm_line: int
    asm_column: int
    snippet: Snippet = field(repr=False)
    fix: Fix | None = None
    places: tuple[tuple[int, int], ...] = ()
    others: tuple[Finding, ...] = field(default=(), repr=False, compare=False)
    end_line: int = field(default=0, compare=False)
    end_column: int = field(default=0, compare=False)

    @property
    def key(self) -> tuple[str, int, int, str, str]:
        """The sort key of findings."""
        return self.path, self.line, self.column, self.rule, self.message
