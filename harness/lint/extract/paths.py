"""Omit paths through a file that its author cannot have meant: their asm lacks a word that another path has.

`op = ""; if kind == "a": op = "cvt.rn..."` has a path on which no branch is taken, with an instruction without opcode.
Such a path is omitted, with a note, if another path to the same call gives the text with the word.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from ptxdiff.lint.snippet import Snippet

_WORD = re.compile(r"[A-Za-z][\w.:]{2,}\s*")


def incomplete_snippets(snippets: Iterable[Snippet]) -> set[Snippet]:
    """The snippets of one call that differ from another snippet only by missing words."""
    all_of_them = list(snippets)
    return {s for s in all_of_them if any(_lacks_words(s, other) for other in all_of_them if other is not s)}


def _lacks_words(snippet: Snippet, other: Snippet) -> bool:
    if snippet.constraints != other.constraints or not 0 < len(other.asm) - len(snippet.asm) < len(other.asm):
        return False
    # Only for an instruction without its opcode: the remaining statement begins with an operand.
    if not re.search(r"(?:^|[;{}\n])\s*(?:[$%]\w+|\{?\s*[\w$%]+\s*)\s*,", snippet.asm):
        return False
    changes = difflib.SequenceMatcher(None, snippet.asm, other.asm, autojunk=False).get_opcodes()
    added = [other.asm[start:end] for kind, _, _, start, end in changes if kind != "equal"]
    return all(kind in ("equal", "insert") for kind, *_ in changes) and all(_WORD.fullmatch(w) for w in added)
