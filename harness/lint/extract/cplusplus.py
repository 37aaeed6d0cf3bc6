"""The inline asm of a C++ or CUDA file, with a parser of only the asm statement.

Comments, strings and raw strings are skipped; macros of the same file that stand for a string are expanded. A statement
with `#if` inside is one snippet for each combination of its branches that a compiler can see. Operands with names
(`%[name]`, which clang takes) are numbered. Asm for a CPU or an AMD GPU is recognised by its constraints and words, and
is skipped with the reason.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ptxdiff.lint.extract import Extracted, Note
from ptxdiff.lint.extract.guards import ABOUT_TARGETS, DIRECTIVES, Directive, conditions_by_offset, decided
from ptxdiff.lint.extract.strings import ESCAPE, File, escaped, joined
from ptxdiff.lint.extract.values import TextValue
from ptxdiff.lint.ptxas_modifiers import names
from ptxdiff.lint.snippet import Snippet, TextOrigin

_TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t\r\n\f\v]|\\\r?\n)+)
  | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\((?P<body>.*?)\)(?P=mark)")
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.|\\\n)*")
  | (?P<char>'(?:[^'\\\n]|\\.)+')
  | (?P<define>\#[ \t]*define\b)
  | (?P<directive>\#[ \t]*(?:DIRECTIVES)\b(?:(?!//|/\*)[^\n\\]|\\\r?\n|\\.)*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<other>.)
    """.replace("DIRECTIVES", DIRECTIVES),
    re.VERBOSE | re.DOTALL,
)
_WORDS = frozenset(("asm", "__asm__", "__asm"))
_QUALIFIERS = frozenset(("volatile", "__volatile__", "__volatile", "inline", "__inline__", "goto"))
_CONTROL = frozenset(("if", "for", "while", "switch", "catch", "return", "sizeof", "alignas", "__launch_bounds__"))
_CONSTRAINT = re.compile(r"[=+]?&?(?:[hrlfdqcbnNC]|[0-9]{1,2})\Z")
_PTX = re.compile(r"(?:^|[;{}\n:\s])(?:[a-z][a-z0-9_]*(?:\.[a-z0-9_:]+)+|\.reg|ret|exit|trap|brkpt|pmevent)\b")
_SURELY_PTX = re.compile(
    r"(?:^|[;{}\n:\s])[a-z][a-z0-9_]*(?:\s*\.[a-zA-Z0-9_:]+)*"
    r"\s*\.(?:[usbf](?:8|16|32|64|128)|f16x2|bf16|bf16x2|tf32|pred|sync|aligned|global|shared|gl|cta)\b|"
    r"\.(?:reg|shared|global|const|local)\s+\.|\.pragma\s+\"|"
    r"(?:^|[;{}\n\s])(?:tcgen05|cp\.async|cp\.reduce|mbarrier|wgmma|mma|wmma|ldmatrix|stmatrix|movmatrix|multimem|"
    r"createpolicy|fence\.(?:proxy|acq_rel|sc|acquire|release|mbarrier)|membar|barrier|bar|griddepcontrol|setmaxnreg|"
    r"nanosleep|clusterlaunchcontrol|applypriority|prefetchu?|elect|redux|activemask|tensormap)\."
)
"""An instruction with a type or state space of PTX, or an opcode that no CPU has. NEON on Arm has some of the types."""
_NEON = re.compile(r"\b[qd]\d+\b")
_WORD = r"(?:^|[;\n{}])\s*(?:\d+:\s*)?"
"""What stands before an instruction's opcode."""
_MACHINES = (
    ("asm of an AMD GPU", re.compile(_WORD + r"(?:s|v|ds|buffer|global|flat|image)_[a-z]\w*(?:\s|;|$)"), ""),
    (
        "asm of an x86 CPU",
        re.compile(
            r"%%?(?:[er]?[abcd]x|[er](?:sp|bp|si|di)|[abcd][lh]|r(?:8|9|1[0-5])[dwb]?|[xyz]mm\d*|[cdefgs]s)\b|"
            + _WORD
            + r"(?:lock|rep\w*|pause|nop|hlt|cpuid|rdtscp?|rdpmc|xgetbv|[mls]fence|clflush\w*|ud2|x?chg\w*|cmpxchg\w*|"
            r"xadd\w*|bs[fr][lq]?|bswap\w*|popcnt\w*|tzcnt\w*|lzcnt\w*|push[lqf]*|pop[lqf]*|mov[bwlq]|"
            r"(?:add|adc|sub|sbb|mul|div|and|or|xor|cmp|test|lea|shl|shr|sar|rol|ror|inc|dec|neg|not)[bwlq]|int3?|v[a-z]+[ps][sd]|[a-z]+[ps]s)(?:\s|;|$)"
        ),
        "abcdSDqQRAxy",
    ),
    (
        "asm of an Arm CPU",
        re.compile(
            r"\bv\d+\.\d*[bhsd]\b|%[wx]\d|%[wx]\[|"
            + _WORD
            + r"(?:dmb|dsb|isb|mrs|msr|mrc|mcr|ldxr\w*|stxr\w*|ldaxr\w*|stlxr\w*|ldrex\w*|strex\w*|yield|wfe|wfi|sevl?|"
            r"svc)(?:\s|;|$)"
        ),
        "",
    ),
    (
        "asm of another CPU",
        re.compile(_WORD + r"(?:fence(?:\.i|\s|$)|csrr\w*|rdcycle\w*|rdtime|mftb|mfspr|isync|lwsync|eieio|stfle|dbar)"),
        "w",
    ),
)
"""What a machine is called, its registers and opcodes, and letters of constraints that PTX does not have there."""
_LABEL = re.compile(r"[\w.$@]+\Z")
_ALONE = frozenset(("ret", "exit", *(name.partition(".")[0] for name in names())))
"""Opcodes that may be all of a text without a semicolon, such as `trap`; other such texts are names of symbols."""
BRANCHES = 64
"""The most combinations of `#if` branches of one statement."""
MOST = 20_000
"""The most tokens of one statement, for files in which a parenthesis is missing."""
_DEVICE = (".cu", ".cuh")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+((?:[^\n\\]|\\\r?\n|\\.)*)", re.MULTILINE)

_KEYWORD = re.compile(r"^[ \t]*#[ \t]*(?:define[ \t]+(\w+)[ \t]+(\S[^\n]*)|undef[ \t]+(\w+))", re.MULTILINE)


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
    operands: list[str] = field(default_factory=list)
    """The name of each operand; "" for one without."""
    unresolved: str = ""


def extract_cplusplus(file: File) -> Extracted:
    """All asm statements of a file."""
    extracted = Extracted(file)
    reader = _Reader(file)
    for at, function, conditions in reader.keywords():
        line = file.place(reader.tokens[at].at)[0]
        if at + 1 < len(reader.tokens) and reader.tokens[at + 1].text == "{":
            extracted.skipped.append(Note(file.path, line, "asm of an x86 CPU"))  # only MSVC has it
            continue
        notes: dict[str, list[Note]] = {}
        for statement, chosen in reader.statements(at):
            machine = _machine(statement, file.path)
            if machine is not None:
                if machine:
                    notes.setdefault(machine, extracted.skipped)
            elif statement.unresolved:
                notes.setdefault(f"not resolved: {statement.unresolved}", extracted.notes)
            else:
                guards = reader.guards(statement.at) + conditions + chosen
                body = reader.body(statement.at)
                extracted.snippets.append(replace(_snippet(file, statement, function), guards=guards, body=body))
        for message, those in notes.items():
            those.append(Note(file.path, line, message))
        if reader.more:
            message = f"more than {BRANCHES} combinations of #if in one statement; the others were left out"
            extracted.notes.append(Note(file.path, line, message))
    return extracted


def _machine(statement: _Statement, path: str) -> str | None:
    """Why a statement is no PTX, in words; None for PTX, "" for what is no instruction at all."""
    text = statement.text.value
    constraints = [c.value.strip() for section in statement.sections[:2] for c in section]
    clobbers = [c.value for c in statement.sections[2]] if len(statement.sections) > 2 else []
    device = path.lower().endswith(_DEVICE)
    if not statement.unresolved and not text.strip():
        return ""
    letters = {c.lstrip("=+&%") for c in constraints}
    if not statement.unresolved and not text.strip("{} \t\r\n;"):
        return None  # a brace, whose pair may be in another statement
    word = bool(_LABEL.match(text)) and not (statement.sections or statement.unresolved)
    alone = word and text.partition(".")[0] in _ALONE
    if word and not alone and not statement.volatile and not any(pattern.search(text) for _, pattern, _ in _MACHINES):
        return ""  # the name of a symbol: `float load(int) asm("llvm.load.f32");`
    if _SURELY_PTX.search(text) and not (_NEON.search(text) or "w" in letters):
        return None
    for machine, pattern, own in _MACHINES:
        if pattern.search(text) or letters & set(own) - set("bd" if device else ""):
            return machine
    strange = [c for c in constraints if not _CONSTRAINT.match(c) and not (len(c.lstrip("=+&")) > 1 and device)]
    if strange:
        return f"asm of another machine: PTX has no constraint {strange[0]!r}"
    if other := [c for c in clobbers if c != "memory"]:
        return f"asm of another machine: PTX has no clobber {other[0]!r}"
    if statement.unresolved:
        return None
    if not device and not alone and not (_PTX.search(text) and ";" in text):
        return "asm of another machine: no instruction of PTX is in it"
    return None


def _snippet(file: File, statement: _Statement, function: str) -> Snippet:
    outputs, inputs, clobbers = ([*statement.sections, [], [], []])[:3]
    line, column = file.place(statement.at)
    operands = [*outputs, *inputs, *(TextValue.plain(f"~{{{c.value}}}") for c in clobbers)]
    constraints = joined(TextValue.plain(","), operands)
    last, last_column = file.place(statement.end + 1)
    return Snippet(
        statement.text.value,
        constraints.value,
        "cuda",
        bool(outputs) and not statement.volatile,
        1,
        (None,) * len(outputs),
        (None,) * len(inputs),
        function=function,
        origin=TextOrigin(file.path, line, column, statement.text.offsets, last, file.starts, last_column),
        constraints_origin=TextOrigin(file.path, line, column, constraints.offsets, last, file.starts, last_column),
    )


class _Undecided(Exception):
    """A condition of `#if` that nothing decides so far."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


class _Reader:
    """Tokens of a file without comments, and the asm statements among them."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.tokens = [*_tokens(file.text)]
        directives = [(t.at + len(t.text), Directive.of(t.text)) for t in self.tokens if t.kind == "directive"]
        self._conditions = conditions_by_offset(directives)
        self.macros = {m[1]: (m[2], m.start(2)) for m in _DEFINE.finditer(file.text)}
        self._keywords = [
            (m.start(), m[1] or m[3], "volatile" in (m[2] or "").split("//")[0])
            for m in _KEYWORD.finditer(file.text)
            if (m[1] or m[3]) in _WORDS
        ]
        """Where the file defines the word `asm` as a macro, or no more, and whether it then means `asm volatile`."""
        self.more = False
        """Whether the last statement has more combinations of branches than were read."""

    def _open_conditions(self, at: int) -> tuple[str, ...]:
        """All `#if` conditions at an offset."""
        return self._conditions[bisect_right(self._conditions, at, key=lambda g: g[0]) - 1][1]

    def guards(self, at: int) -> tuple[str, ...]:
        """The `#if` conditions about targets at an offset."""
        return tuple(condition for condition in self._open_conditions(at) if ABOUT_TARGETS.search(condition))

    def keywords(self) -> Iterator[tuple[int, str, tuple[str, ...]]]:
        """The token of each `asm`, the name of the function around it, and conditions on targets (`if constexpr`)."""
        names: list[tuple[str, tuple[str, ...]]] = []
        for at, token in enumerate(self.tokens):
            name, conditions = names[-1] if names else ("", ())
            if token.text == "{":
                named, condition = self._before(at)
                names.append((named or name, conditions + condition))
            elif token.text == "}" and names:
                names.pop()
            elif token.kind == "name" and token.text in _WORDS:
                yield at, name, conditions

    def statements(self, at: int) -> Iterator[tuple[_Statement, tuple[str, ...]]]:
        """The statement whose keyword is at a token: one for each combination of the `#if` branches inside it.

        With each the conditions on targets that it assumes. Equal conditions have equal values, and no combination
        contradicts the conditions around the statement, nor every value of `__CUDA_ARCH__`.
        """
        around = dict(_normal(condition) for condition in self._open_conditions(self.tokens[at].at))
        waiting = [around]
        number = 0
        self.more = False
        while waiting:
            assumed = waiting.pop()
            try:
                tokens = self._taken(at, assumed)
            except _Undecided as undecided:
                both = [{**assumed, undecided.condition: value} for value in (False, True)]
                waiting += [each for each in both if _possible(each)] or both
                continue
            number += 1
            if number > BRANCHES:
                self.more = True
                return
            if statement := self._statement(tokens):
                inside = [(condition, value) for condition, value in assumed.items() if condition not in around]
                about = [(condition, value) for condition, value in inside if ABOUT_TARGETS.search(condition)]
                yield statement, tuple(condition if value else f"!({condition})" for condition, value in about)

    def _taken(self, at: int, assumed: dict[str, bool]) -> list[_Token]:
        """The tokens of a statement, up to its closing parenthesis, in the branches that are compiled.

        Raises _Undecided for a condition that has no value yet.
        """
        taken: list[_Token] = []
        groups: list[tuple[bool, bool]] = []
        """For each open `#if`: whether this branch is compiled, and whether this or an earlier one is."""
        depth = 0
        for token in self.tokens[at : at + MOST]:
            active = all(compiled for compiled, _ in groups)
            if token.kind == "directive":
                directive = Directive.of(token.text)
                if directive.kind == "if":
                    value = active and _value(directive.condition, assumed)
                    groups.append((value, value or not active))
                elif directive.kind == "endif":
                    if groups:
                        groups.pop()
                else:  # without an open #if, the statement began in a branch that ends here
                    done = groups.pop()[1] if groups else True
                    outer = all(compiled for compiled, _ in groups)
                    value = not done and outer and (directive.kind == "else" or _value(directive.condition, assumed))
                    groups.append((value, done or value))
                continue
            if not active:
                continue
            taken.append(token)
            depth += (token.text == "(") - (token.text == ")")
            if token.text in ("(", ")") and depth <= 0:
                break
            if depth == 0 and len(taken) > 1 and token.text not in _QUALIFIERS:
                break
        return taken

    def body(self, at: int) -> int:
        """The offset of the body of the outermost function around an offset; 0 if there is none."""
        start, end = self._bodies[bisect_right(self._bodies, (at, 0)) - 1]
        return start if start < at < end else 0

    @cached_property
    def _bodies(self) -> list[tuple[int, int]]:
        """Start and end of the body of each function that is in no other, and (0, 0) first."""
        bodies = [(0, 0)]
        depth = 0
        inside = 0
        """The depth of the function's brace; 0 outside functions."""
        for at, token in enumerate(self.tokens):
            if token.text == "{":
                depth += 1
                if not inside and self._before(at)[0]:
                    inside = depth
                    bodies.append((token.at, len(self.file.text)))
            elif token.text == "}":
                if depth == inside:
                    bodies[-1] = bodies[-1][0], token.at
                    inside = 0
                depth = max(depth - 1, 0)
        return bodies

    def _before(self, at: int) -> tuple[str, tuple[str, ...]]:
        """The context of an opening brace: the function whose body begins there, or a condition about targets."""
        end = at
        at -= 1
        while at >= 0 and self.tokens[at].kind == "directive":
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
        condition = " ".join(t.text for t in self.tokens[at + 1 : end])
        return "", (condition,) if ABOUT_TARGETS.search(condition) else ()

    def _statement(self, tokens: Sequence[_Token]) -> _Statement | None:
        """The statement of these tokens, of which the first is its keyword; None if it is no asm statement."""
        statement = _Statement(tokens[0].at)
        meant = [v for start, word, v in self._keywords if start < statement.at and word == tokens[0].text]
        statement.volatile = bool(meant) and meant[-1]
        at = 1
        while at < len(tokens) and tokens[at].text in _QUALIFIERS:
            statement.volatile |= "volatile" in tokens[at].text
            at += 1
        if at >= len(tokens) or tokens[at].text != "(":
            return None
        at += 1
        while at < len(tokens) and tokens[at].text not in (":", ")"):
            statement.text = statement.text + self._piece(tokens[at], statement)
            at += 1
        while at < len(tokens) and tokens[at].text == ":":
            at = self._section(tokens, at + 1, statement)
        statement.end = tokens[at].at if at < len(tokens) else statement.at
        statement.text = _numbered(statement)
        return statement

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

    def _section(self, tokens: Sequence[_Token], at: int, statement: _Statement) -> int:
        """Parse operands or clobbers up to the next colon or the end; returns the index of the ending token."""
        section: list[TextValue] = []
        statement.sections.append(section)
        constraint = TextValue("", ())
        name = ""
        while at < len(tokens):
            token = tokens[at]
            if token.text in (":", ")", ","):
                if constraint.value:
                    section.append(constraint)
                    statement.operands.append(name)
                    constraint, name = TextValue("", ()), ""
                if token.text != ",":
                    return at
            elif token.text == "(":
                at = _closing(tokens, at)
                if constraint.value:  # nvcc needs no comma between operands: "r"(a) "h"(b)
                    section.append(constraint)
                    statement.operands.append(name)
                    constraint, name = TextValue("", ()), ""
            elif token.text == "[":
                start = at + 1
                while at < len(tokens) and tokens[at].text != "]":
                    at += 1
                name = "".join(t.text for t in tokens[start:at])
            else:
                constraint = constraint + self._piece(token, statement)
            at += 1
        return at


def _closing(tokens: Sequence[_Token], at: int) -> int:
    depth = 0
    while at < len(tokens):
        depth += (tokens[at].text == "(") - (tokens[at].text == ")")
        if depth == 0:
            return at
        at += 1
    return at


def _numbered(statement: _Statement) -> TextValue:
    """The text with the number of each operand instead of its name (`%[name]`); unknown names stay."""
    numbers = {name: number for number, name in enumerate(statement.operands) if name}
    text, result, end = statement.text, TextValue("", ()), 0
    for named in re.finditer(r"%\[(\w+)\]", text.value) if numbers else ():
        if named[1] in numbers:
            digits = str(numbers[named[1]])
            # The digits are not in the file, so that no repair replaces a part of the name.
            percent = TextValue(f"%{digits}", (text.offsets[named.start()], *(-1 for _ in digits)))
            result = result + _part(text, end, named.start()) + percent
            end = named.end()
    return result + _part(text, end, len(text.value)) if end else text


def _part(text: TextValue, start: int, end: int) -> TextValue:
    return TextValue(text.value[start:end], text.offsets[start:end])


def _normal(condition: str) -> tuple[str, bool]:
    """A condition without the negations before it, and its value where the whole condition holds."""
    value = True
    condition = re.sub(r"\bdefined\s+(\w+)", r"defined(\1)", condition.strip())
    while True:
        inner = condition[1:].strip() if condition[:1] == "!" else condition
        bare = re.fullmatch(r"\w+|defined\s*\(\s*\w+\s*\)", inner)
        if condition[:1] == "!" and (bare or _wrapped(inner)):
            condition, value = inner, not value
        elif _wrapped(condition):
            condition = condition[1:-1].strip()
        else:
            return " ".join(condition.split()), value


def _wrapped(text: str) -> bool:
    """Whether one pair of parentheses holds all of a text."""
    if text[:1] != "(":
        return False
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return at == len(text) - 1
    return False


def _value(condition: str, assumed: dict[str, bool]) -> bool:
    """The value of an `#if` condition. Raises _Undecided."""
    normal, value = _normal(condition)
    if normal in ("0", "false", "1", "true"):
        return value == (normal in ("1", "true"))
    if normal not in assumed:
        raise _Undecided(normal)
    return assumed[normal] == value


def _possible(assumed: dict[str, bool]) -> bool:
    """Whether some `__CUDA_ARCH__`, or none at all, allows conditions with these values, as far as they are known."""
    return any(
        all(decided(condition, number) in (None, value) for condition, value in assumed.items())
        for number in (0, *range(20, 200))
    )


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Offset and text of each comment."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "comment":
            yield match.start(), match[0]


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind in ("mark", "body"):
            kind = "raw"
        start = text.rfind("\n", 0, match.start()) + 1
        if kind == "directive" and text[start : match.start()].strip():
            kind = "other"  # `#` within a macro makes a string
        if kind not in ("space", "comment"):
            # `::` is two colons, each of which ends a section.
            yield _Token(kind, match[0], match.start())


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
            characters = escaped(escape[0])
            chars += [(c, token.at + at) for c in (characters if len(characters) <= 1 else characters[-1:])]
            at = escape.end()
        else:
            chars.append((token.text[at], token.at + at))
            at += 1
    return TextValue("".join(c for c, _ in chars), tuple(o for _, o in chars))
