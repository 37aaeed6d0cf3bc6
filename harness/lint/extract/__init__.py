"""Find the inline asm of a file: Python by its syntax tree, C++ and CUDA by their asm statements. Nothing is run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from harness.lint.extract.literals import File
from harness.lint.snippet import Snippet

PYTHON = frozenset((".py", ".pyi"))
CPLUSPLUS = frozenset((".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hh", ".hxx", ".inl", ".inc"))
SUFFIXES = PYTHON | CPLUSPLUS

_HINT = {
    **dict.fromkeys(PYTHON, re.compile(rb"inline_asm|\b(?:from|import)\s+harness\b")),
    **dict.fromkeys(CPLUSPLUS, re.compile(rb"\b(?:asm|__asm__|__asm)\b")),
}


@dataclass(frozen=True)
class Note:
    """A place that was not examined, and why."""

    path: str
    line: int
    words: str


@dataclass
class Extracted:
    """The snippets of one file sorted by place, the unresolved places, and the comments that silence rules."""

    file: File
    snippets: list[Snippet] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def may_hold_asm(content: bytes, suffix: str) -> bool:
    """Whether a file contains any of the words of inline asm: a quick test without parsing."""
    hint = _HINT.get(suffix.lower())
    return hint is not None and hint.search(content) is not None


def extract(path: str, content: bytes) -> Extracted | None:
    """The inline asm of a file; None if it contains none of its words, or if its kind is not supported."""
    suffix = Path(path).suffix.lower()
    if not may_hold_asm(content, suffix):
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Extracted(File(path, ""), notes=[Note(path, 1, "the file is no UTF-8 text")])
    if suffix in PYTHON:
        from harness.lint.extract.python import extract_python

        return extract_python(File(path, text.replace("\r\n", "\n").replace("\r", "\n")))
    from harness.lint.extract.cplusplus import extract_cplusplus

    return extract_cplusplus(File(path, text))
