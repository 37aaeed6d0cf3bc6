"""Find the inline asm of a file: Python by its syntax tree, C++ and CUDA by their asm statements. Nothing is run."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

from ptxdiff.lint.extract.strings import File
from ptxdiff.lint.snippet import Snippet

PYTHON = frozenset((".py", ".pyi"))
CPLUSPLUS = frozenset((".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hh", ".hxx", ".inl", ".inc"))
SUFFIXES = PYTHON | CPLUSPLUS

_HINT = {
    **dict.fromkeys(PYTHON, re.compile(rb"inline_asm|\b(?:from|import)\s+ptxdiff\b")),
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
    """The snippets of one file sorted by place, and the places without any.

    notes: places that were not resolved. skipped: asm that is no PTX, and why. unreadable: why the whole file could not
    be read; None if it was.
    """

    file: File
    snippets: list[Snippet] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    skipped: list[Note] = field(default_factory=list)
    unreadable: Note | None = None


def may_hold_asm(content: bytes, suffix: str) -> bool:
    """Whether a file contains any of the words of inline asm: a quick test without parsing."""
    hint = _HINT.get(suffix.lower())
    if hint is None:
        return False
    # UTF-16 and UTF-32 have a zero byte beside each letter.
    return hint.search(content.replace(b"\0", b"") if b"\0" in content else content) is not None


class UndecodableError(Exception):
    """A file whose bytes are no text in its encoding. `line`: the line, from 1; 0 if it is not known."""

    def __init__(self, line: int, words: str) -> None:
        super().__init__(words)
        self.line = line


@dataclass(frozen=True)
class Decoded:
    """The text of a source file as the extraction sees it, and what `encoded` needs to give its bytes again.

    newline: what a line of the file ends with; None if its lines end in different ways.
    """

    text: str
    encoding: str
    newline: str | None = "\n"

    def encoded(self, text: str) -> bytes:
        """The bytes of a changed text, with the file's own encoding and line ends. `newline` must not be None."""
        assert self.newline is not None
        return (text.replace("\n", self.newline) if self.newline != "\n" else text).encode(self.encoding)


def decoded(path: str, content: bytes) -> Decoded:
    """The text of a source file. Raises UndecodableError.

    Python declares its encoding in its first two lines, or is UTF-8 (PEP 263). C++ compilers take any bytes in comments
    and strings: a file that is neither UTF-8 nor UTF-16 is read as Latin-1, which gives each byte its own character.
    """
    if Path(path).suffix.lower() in PYTHON:
        return _decoded_python(content)
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if content.startswith(mark):
            with contextlib.suppress(UnicodeDecodeError):
                return Decoded(content.decode(encoding), encoding)
    try:
        return Decoded(content.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        return Decoded(content.decode("latin-1"), "latin-1")


def _decoded_python(content: bytes) -> Decoded:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except SyntaxError as error:
        raise UndecodableError(1, f"the file is no Python source: {error}") from None
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        byte = content[error.start]
        raise UndecodableError(
            line, f"the file is no {encoding.upper().removesuffix('-SIG')} text: byte 0x{byte:02x} cannot stand here"
        ) from None
    ends = {"\r\n"} if "\r\n" in text else set()
    ends |= {line_end[0] for line_end in re.finditer(r"\r(?!\n)|(?<!\r)\n", text)}
    newline = "\n" if not ends else ends.pop() if len(ends) == 1 else None
    return Decoded(text.replace("\r\n", "\n").replace("\r", "\n"), encoding, newline)


def extract(path: str, content: bytes) -> Extracted | None:
    """The inline asm of a file; None if it contains none of its words, or if its kind is not supported."""
    suffix = Path(path).suffix.lower()
    if not may_hold_asm(content, suffix):
        return None
    try:
        text = decoded(path, content).text
    except UndecodableError as error:
        return Extracted(File(path, ""), unreadable=Note(path, error.line, str(error)))
    return extract_text(path, text)


def extract_text(path: str, text: str) -> Extracted:
    """The inline asm of a text, whose language is that of the path's suffix."""
    if Path(path).suffix.lower() in PYTHON:
        from ptxdiff.lint.extract.python import extract_python

        return extract_python(File(path, text))
    from ptxdiff.lint.extract.cplusplus import extract_cplusplus

    return extract_cplusplus(File(path, text))
