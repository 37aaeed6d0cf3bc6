"""Ways through a file that are followed and cannot be meant: a text that lacks the word another way puts in.

`op = ""; if kind == "a": op = "cvt.rn..."` leaves a way on which no branch is taken, with an instruction that has no
opcode. Such a way is left out where another one of the same call gives the text with the word in it, and is said.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from harness.lint.snippet import Snippet

_WORD = re.compile(r"[A-Za-z][\w.:]{2,}\s*")


def unmeant(snippets: Iterable[Snippet]) -> set[Snippet]:
    """The snippets of one call that differ from another one by words that are missing alone."""
    all_of_them = list(snippets)
    return {s for s in all_of_them if any(_lacks_words(s, other) for other in all_of_them if other is not s)}


def _lacks_words(snippet: Snippet, other: Snippet) -> bool:
    if snippet.constraints != other.constraints or not 0 < len(other.asm) - len(snippet.asm) < len(other.asm):
        return False
    # Only an instruction without its opcode is meant here: what is left begins a statement with an operand.
    if not re.search(r"(?:^|[;{}\n])\s*(?:[$%]\w+|\{?\s*[\w$%]+\s*)\s*,", snippet.asm):
        return False
    changes = difflib.SequenceMatcher(None, snippet.asm, other.asm, autojunk=False).get_opcodes()
    added = [other.asm[start:end] for kind, _, _, start, end in changes if kind != "equal"]
    return all(kind in ("equal", "insert") for kind, *_ in changes) and all(_WORD.fullmatch(w) for w in added)
