"""The inline asm of a C++ or CUDA file, with a parser of only the asm statement.

Comments, strings and raw strings are skipped; macros of the same file that stand for a string are expanded. Asm for a
host CPU or an AMD GPU is recognised by its constraints and words, and is ignored.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from harness.lint.extract import Extracted, Note
from harness.lint.extract.guards import ABOUT_TARGETS, preprocessor_guards
from harness.lint.extract.literals import ESCAPE, File, escaped
from harness.lint.extract.strings import joined
from harness.lint.extract.values import TextValue
from harness.lint.snippet import Snippet, TextOrigin

_TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t\r\n\f\v]|\\\r?\n)+)
  | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\((?P<body>.*?)\)(?P=mark)")
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.|\\\n)*")
  | (?P<char>'(?:[^'\\\n]|\\.)+')
  | (?P<define>\#[ \t]*define\b)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_WORDS = frozenset(("asm", "__asm__", "__asm"))
_QUALIFIERS = frozenset(("volatile", "__volatile__", "__volatile", "inline", "__inline__", "goto"))
_CONTROL = frozenset(("if", "for", "while", "switch", "catch", "return", "sizeof", "alignas", "__launch_bounds__"))
_CONSTRAINT = re.compile(r"[=+]?&?(?:[hrlfdqcbnNC]|[0-9]{1,2})\Z")
_PTX = re.compile(r"(?:^|[;{}\n:\s])(?:[a-z][a-z0-9_]*(?:\.[a-z0-9_:]+)+|\.reg|ret|exit|trap|brkpt)\b|\A\s*[{}]\s*\Z")
_HOST = re.compile(r"%%[er]?[abcd]x|%%[er](?:sp|bp|si|di)|%%[xyz]mm|\bv\d+\.\d*[bhsd]\b|\b[sv]_[a-z]\w*\s")
_DEVICE = (".cu", ".cuh")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+((?:[^\n\\]|\\\r?\n|\\.)*)", re.MULTILINE)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


@dataclass
class _Statement:
    """An asm statement during parsing."""

    at: int
    end: int = 0
    volatile: bool = False
    text: TextValue = field(default_factory=lambda: TextValue("", ()))
    sections: list[list[TextValue]] = field(default_factory=list)
    unresolved: str = ""


def extract_cplusplus(file: File) -> Extracted:
    """All asm statements of a file."""
    found = Extracted(file)
    reader = _Reader(file)
    for statement, function, conditions in reader.statements():
        line = file.place(statement.at)[0]
        host = not file.path.endswith(_DEVICE) and not _PTX.search(statement.text.value)
        if statement.unresolved and not host:
            found.notes.append(Note(file.path, line, f"not resolved: {statement.unresolved}"))
        if statement.unresolved or not _is_ptx(statement, file.path):
            continue
        guards = reader.guards(statement.at) + conditions
        found.snippets.append(
            replace(_snippet(file, statement, function), guards=guards, body=reader.body(statement.at))
        )
    return found


def _is_ptx(statement: _Statement, path: str) -> bool:
    text = statement.text.value
    constraints = [c.value.strip() for section in statement.sections[:2] for c in section]
    clobbers = statement.sections[2] if len(statement.sections) > 2 else []
    known = [_CONSTRAINT.match(c) or (len(c.lstrip("=+&")) > 1 and path.endswith(_DEVICE)) for c in constraints]
    if not text.strip() or not all(known):
        return False
    if _HOST.search(text) or any(c.value != "memory" for c in clobbers):
        return False
    return bool(_PTX.search(text)) and (path.endswith(_DEVICE) or ";" in text or text.strip() in ("{", "}"))


def _snippet(file: File, statement: _Statement, function: str) -> Snippet:
    outputs, inputs, clobbers = ([*statement.sections, [], [], []])[:3]
    line, column = file.place(statement.at)
    words = [*outputs, *inputs, *(TextValue.plain(f"~{{{c.value}}}") for c in clobbers)]
    constraints = joined(TextValue.plain(","), words)
    last = file.place(statement.end)[0]
    return Snippet(
        statement.text.value,
        constraints.value,
        "cuda",
        bool(outputs) and not statement.volatile,
        1,
        (None,) * len(outputs),
        (None,) * len(inputs),
        function=function,
        origin=TextOrigin(file.path, line, column, statement.text.offsets, last, file.starts),
        constraints_origin=TextOrigin(file.path, line, column, constraints.offsets, last, file.starts),
    )


class _Reader:
    """Tokens of a file without comments, and the asm statements among them."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.tokens = [*_tokens(file.text)]
        self._guards = preprocessor_guards(file.text)
        self.macros = {m[1]: (m[2], m.start(2)) for m in _DEFINE.finditer(file.text)}

    def guards(self, at: int) -> tuple[str, ...]:
        """The `#if` conditions about targets at an offset."""
        return self._guards[bisect_right(self._guards, at, key=lambda g: g[0]) - 1][1]

    def statements(self) -> Iterator[tuple[_Statement, str, tuple[str, ...]]]:
        """Each asm statement, the name of the function around it, and conditions about targets (`if constexpr`)."""
        names: list[tuple[str, tuple[str, ...]]] = []
        for at, token in enumerate(self.tokens):
            name, conditions = names[-1] if names else ("", ())
            if token.text == "{":
                named, condition = self._before(at)
                names.append((named or name, conditions + condition))
            elif token.text == "}" and names:
                names.pop()
            elif token.kind == "name" and token.text in _WORDS and (statement := self._statement(at)):
                yield statement, name, conditions

    def body(self, at: int) -> int:
        """The offset of the body of the outermost function around an offset; 0 if there is none."""
        start, end = self._bodies[bisect_right(self._bodies, (at, 0)) - 1]
        return start if start < at < end else 0

    @cached_property
    def _bodies(self) -> list[tuple[int, int]]:
        """Start and end of the body of each function that is in no other, and (0, 0) first."""
        found = [(0, 0)]
        depth = 0
        inside = 0
        """The depth of the function's brace; 0 outside functions."""
        for at, token in enumerate(self.tokens):
            if token.text == "{":
                depth += 1
                if not inside and self._before(at)[0]:
                    inside = depth
                    found.append((token.at, len(self.file.text)))
            elif token.text == "}":
                if depth == inside:
                    found[-1] = found[-1][0], token.at
                    inside = 0
                depth = max(depth - 1, 0)
        return found

    def _before(self, at: int) -> tuple[str, tuple[str, ...]]:
        """The context of an opening brace: the function whose body begins there, or a condition about targets."""
        end = at
        at -= 1
        while at >= 0 and (
            self.tokens[at].kind == "name" and self.tokens[at].text in ("const", "noexcept", "override")
        ):
            at -= 1
        if at < 0 or self.tokens[at].text != ")":
            return "", ()
        depth = 0
        while at >= 0:
            depth += (self.tokens[at].text == ")") - (self.tokens[at].text == "(")
            at -= 1
            if depth == 0:
                break
        name = self.tokens[at] if at >= 0 else None
        if name is None:
            return "", ()
        for start in range(at, max(at - 4, -1), -1):
            if self.tokens[start].text == "operator":  # `operator+=`, `operator()`
                return "".join(t.text for t in self.tokens[start : at + 1]), ()
        if name.kind != "name":
            return "", ()
        if name.text not in _CONTROL and name.text != "constexpr":
            return name.text, ()
        words = " ".join(t.text for t in self.tokens[at + 1 : end])
        return "", (words,) if ABOUT_TARGETS.search(words) else ()

    def _statement(self, at: int) -> _Statement | None:
        """The statement whose keyword is at a token; None if it is no asm statement."""
        found = _Statement(self.tokens[at].at)
        at += 1
        while at < len(self.tokens) and self.tokens[at].text in _QUALIFIERS:
            found.volatile |= "volatile" in self.tokens[at].text
            at += 1
        if at >= len(self.tokens) or self.tokens[at].text != "(":
            return None
        at += 1
        while at < len(self.tokens) and self.tokens[at].text not in (":", ")"):
            found.text = found.text + self._piece(self.tokens[at], found)
            at += 1
        while at < len(self.tokens) and self.tokens[at].text == ":":
            at = self._section(at + 1, found)
        found.end = self.tokens[at].at if at < len(self.tokens) else found.at
        return found

    def _piece(self, token: _Token, statement: _Statement) -> TextValue:
        """A part of the text: a literal, or a macro that stands for literals."""
        if token.kind in ("string", "raw"):
            return _literal(token)
        if token.kind == "name" and token.text in self.macros:
            body, start = self.macros[token.text]
            inner = [*_tokens(body)]
            if all(t.kind in ("string", "raw") for t in inner):
                text = TextValue("", ())
                for each in inner:
                    text = text + _literal(_Token(each.kind, each.text, each.at + start))
                return text
        statement.unresolved = (
            statement.unresolved or f"`{token.text}` among the strings is no macro for strings in this file"
        )
        return TextValue("", ())

    def _section(self, at: int, statement: _Statement) -> int:
        """Parse operands or clobbers up to the next colon or the end; returns the index of the ending token."""
        section: list[TextValue] = []
        statement.sections.append(section)
        constraint = TextValue("", ())
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.text in (":", ")", ","):
                if constraint.value:
                    section.append(constraint)
                    constraint = TextValue("", ())
                if token.text != ",":
                    return at
            elif token.text == "(":
                at = self._closing(at)
                if constraint.value:  # nvcc needs no comma between operands: "r"(a) "h"(b)
                    section.append(constraint)
                    constraint = TextValue("", ())
            elif token.text == "[":
                while at < len(self.tokens) and self.tokens[at].text != "]":
                    at += 1
                statement.unresolved = statement.unresolved or "operands with symbolic names, which CUDA does not have"
            else:
                constraint = constraint + self._piece(token, statement)
            at += 1
        return at

    def _closing(self, at: int) -> int:
        depth = 0
        while at < len(self.tokens):
            depth += (self.tokens[at].text == "(") - (self.tokens[at].text == ")")
            if depth == 0:
                return at
            at += 1
        return at


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Offset and text of each comment."""
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "comment":
            yield found.start(), found[0]


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "other"
        if kind in ("mark", "body"):
            kind = "raw"
        if kind not in ("space", "comment"):
            # `::` is two colons, each of which ends a section.
            yield _Token(kind, found[0], found.start())


def _literal(token: _Token) -> TextValue:
    """The text of a string literal with the place of each character."""
    if token.kind == "raw":
        start = token.text.index("(") + 1
        mark = token.text[token.text.index('"') + 1 : start - 1]
        body = token.text[start : len(token.text) - len(mark) - 2]
        return TextValue(body, tuple(range(token.at + start, token.at + start + len(body))))
    at = token.text.index('"') + 1
    chars: list[tuple[str, int]] = []
    end = len(token.text) - 1
    while at < end:
        escape = ESCAPE.match(token.text, at, end) if token.text[at] == "\\" else None
        if escape:
            words = escaped(escape[0])
            chars += [(c, token.at + at) for c in (words if len(words) <= 1 else words[-1:])]
            at = escape.end()
        else:
            chars.append((token.text[at], token.at + at))
            at += 1
    return TextValue("".join(c for c, _ in chars), tuple(o for _, o in chars))
