"""A campaign of refusals: emulator and assemblers should agree on whether a mechanically changed program is legal.

The emulator's checks and every assembler (the judges) get each changed program. Disagreements are grouped by the kind
of change, by who accepts and who refuses the program, and by the text of the refusal. The first program of each group
is kept. Crashes and hangs of an assembler, and internal errors of the emulator, form their own groups. A journal lets a
stopped campaign continue.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ptxdiff.emulator import InternalError, PtxError, load_kernel
from ptxdiff.fuzz.assemblers import Ptxas, PtxasResult
from ptxdiff.fuzz.campaign import CampaignJournal
from ptxdiff.fuzz.execution import text_of
from ptxdiff.fuzz.generate import FAMILIES, FIRST, Held, shaped
from ptxdiff.fuzz.program import INPUTS, RandomProgram, Variable
from ptxdiff.fuzz.reduce import without
from ptxdiff.triton.from_ptx import header_fault, other_target
from ptxdiff.triton.ptx_text import without_comments

EMULATOR = "the emulator"
CHUNK = 8


@dataclass(frozen=True)
class RefusalPlan:
    """The plan of a campaign, as `FuzzPlan`. avoid: signatures of known groups."""

    seed: str
    target: str
    capability: int
    assemblers: tuple[Ptxas, ...]
    weights: Mapping[str, float]
    avoid: frozenset[str] = frozenset()

    def identity(self) -> dict[str, Any]:
        """The values that must be the same to continue a journal."""
        return {"refusals": self.seed, "target": self.target, "weights": dict(self.weights),
                "assemblers": [a.label for a in self.assemblers]}  # fmt: skip


@dataclass(frozen=True)
class RefusalGroup:
    """Changed programs on which the judges disagree; seed, change and text are those of the first.

    takes, refuses: the judges that accept and refuse it. words: the error texts of those that refuse or fail. seen: the
    number of programs in the group.
    """

    signature: str
    seed: str
    kind: str
    change: str
    takes: tuple[str, ...]
    refuses: tuple[str, ...]
    words: tuple[str, ...]
    text: str
    seen: int = 1


@dataclass
class RefusalsTried:
    """The progress of a campaign. refused: programs that all judges refuse. known: disagreements of groups in
    `avoid`."""

    chunks: set[int] = field(default_factory=set)
    programs: int = 0
    refused: int = 0
    known: int = 0
    groups: dict[str, RefusalGroup] = field(default_factory=dict)


def tried(plan: RefusalPlan, number: int) -> tuple[int, int, list[RefusalGroup]]:
    """Make and judge a chunk of programs. Returns their number, the number that all judges refuse, and
    disagreements."""
    disagreements, refused = [], 0
    for index in range(CHUNK):
        made = illegal(f"{plan.seed}/{number * CHUNK + index}", plan.capability, plan.weights, plan.target)
        answers = {EMULATOR: emulator_refusal(made.text, plan.target)}
        for one in plan.assemblers:
            answers[one.label] = _word(one.assemble(made.text, plan.target))
        refused += all(w is not None for w in answers.values())
        if (one_found := disagreement(made, answers)) is not None:
            disagreements.append(one_found)
    return CHUNK, refused, disagreements


def emulator_refusal(text: str, target: str) -> str | None:
    """The reason why the emulator refuses a module on a target; None if it would run its kernel."""
    try:
        code = without_comments(text)
        if reason := other_target(code, target) or header_fault(code):
            return reason
        load_kernel.__wrapped__(text)
    except InternalError as error:
        return f"{FAILS}: {error.message}"
    except PtxError as error:
        return error.message
    return None


FAILS = "fails"
"""The prefix of the answer of a judge that failed: it neither accepts nor refuses the program."""


def _word(done: PtxasResult) -> str | None:
    if done.ended in ("crashed", "hung"):
        return f"{FAILS}: {done.ended}: {done.words}"
    if done.ended == "assembled":
        return None
    lines = [line for line in done.words.splitlines() if re.search(r"error|fatal", line)]
    return (lines or [done.words])[0].split(": ", 1)[-1].strip()


def disagreement(made: Illegal, answers: Mapping[str, str | None]) -> RefusalGroup | None:
    """The disagreement on a program, or the failure of a judge; None if all agree.

    answers: for each judge the reason why it refuses the program; None if it accepts it.
    """
    takes = tuple(n for n, w in answers.items() if w is None)
    refuses = {n: w for n, w in answers.items() if w is not None}
    failing = {n: w for n, w in refuses.items() if w.startswith(FAILS)}
    if not failing and not (takes and refuses):
        return None
    messages = tuple((failing or refuses).values())
    who = f"{', '.join(failing)} fails" if failing else f"{', '.join(takes)}: yes; {', '.join(refuses)}: no"
    signature = f"{made.kind} | {who} | {_general(messages[0])}".strip()
    return RefusalGroup(
        signature, made.seed, made.kind, made.change, takes, tuple(failing or refuses), messages, made.text
    )


def _general(words: str) -> str:
    """An error text on one line, with the program's names, registers and numbers replaced."""
    words = re.sub(r"'[^']*'", "'…'", " ".join(words.split()))
    return re.sub(r"[%$]?\b[\w$]*\d[\w$]*\b", "N", words)[:120]


class RefusalCampaign:
    """Runs a plan. journal: a file with a line for each finished chunk."""

    def __init__(self, plan: RefusalPlan, journal: Path, *, jobs: int = 1) -> None:
        self.plan, self.jobs = plan, jobs
        self.state = RefusalsTried()
        self._journal = CampaignJournal(journal, plan.identity())
        for line in self._journal.earlier:
            self._count(line["chunk"], line["programs"], line["refused"], [_group(fields) for fields in line["groups"]])

    def run(
        self, seconds: float, most: int | None = None, progress: Callable[[RefusalsTried], None] = lambda _: None
    ) -> RefusalsTried:
        """Continue for some seconds, or until `most` programs were tried in all. progress: called after some chunks."""
        end = time.monotonic() + seconds
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn"), initializer=_alone) as pool:
            number = 0
            while time.monotonic() < end and (most is None or self.state.programs < most):
                wanted: list[int] = []
                left = 2 * self.jobs if most is None else -(-(most - self.state.programs) // CHUNK)
                while len(wanted) < min(left, 2 * self.jobs):
                    if number not in self.state.chunks:
                        wanted.append(number)
                    number += 1
                for done, result in zip(wanted, pool.map(tried, [self.plan] * len(wanted), wanted), strict=True):
                    self.take(done, *result)
                progress(self.state)
        return self.state

    def take(self, number: int, programs: int, refused: int, found: Sequence[RefusalGroup]) -> None:
        """Count the programs of a batch, write its line to the journal, and add the groups that it found."""
        self._count(number, programs, refused, found)
        groups = [asdict(g) for g in found]
        self._journal.note({"chunk": number, "programs": programs, "refused": refused, "groups": groups})

    def _count(self, number: int, programs: int, refused: int, found: Sequence[RefusalGroup]) -> None:
        for one in found:
            if one.signature in self.plan.avoid:
                self.state.known += 1
                continue
            before = self.state.groups.get(one.signature)
            self.state.groups[one.signature] = one if before is None else replace(before, seen=before.seen + 1)
        self.state.programs += programs
        self.state.refused += refused
        self.state.chunks.add(number)


def _group(fields: Mapping[str, Any]) -> RefusalGroup:
    given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
    return RefusalGroup(**given)


def write_groups(folder: Path, groups: Sequence[RefusalGroup]) -> list[Path]:
    """Write the first program of each group, most frequent first, and `refusals.txt` with all signatures.

    With that file as `--avoid` the next campaign ignores these groups.
    """
    ordered = sorted(groups, key=lambda g: (-g.seen, g.signature))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "refusals.txt").write_text("".join(f"{g.signature}\n" for g in ordered), encoding="utf-8")
    places = []
    for number, group in enumerate(ordered, 1):
        subfolder = folder / re.sub(r"\W+", "-", f"refusal-{number:02}-{group.kind}")
        subfolder.mkdir(exist_ok=True)
        (subfolder / "program.ptx").write_text(group.text, encoding="utf-8")
        (subfolder / "refusal.json").write_text(json.dumps(asdict(group), indent=1) + "\n", encoding="utf-8")
        places.append(subfolder)
    return places


def _alone() -> None:
    """Use one thread in each process, because there is a process for each core."""
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"


# Programs that are probably illegal: legal programs with one mechanical change, like a typing mistake --------------
#
# The emulator and the assemblers decide whether a changed program is illegal.

_TYPES = ("b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f16x2", "bf16",
    "bf16x2", "f32", "f64", "pred", "tf32",
)  # fmt: skip
_WORDS = ("rn", "rz", "ftz", "sat", "satfinite", "relu", "lo", "hi", "wide", "cc", "NaN", "approx", "noftz", "sync",
    "global", "shared", "v2", "wrap", "and", "uni",
)  # fmt: skip
_NAMES = ("%tid", "%laneid", "%clock64", "%envreg3", "WARP_SZ", "add", "%p", "$x", "_", "_a", "9a", "%9", "own", "p0",
    "a-b", "%r0", "%in", "reg", "ret", "x.y",
)  # fmt: skip
_CONSTANTS = ("-1", "4294967296", "0x1FFFFFFFFFFFFFFFF", "1.5", "0f3F800000", "0d3FF0000000000000", "0f3F8", "08",
    "1U", "0b12", "-0x80000001", "1e3", "'a'", "1/0", "(1+2)*3", "!1", "~0",
)  # fmt: skip
_TARGETS = ("sm_20", "sm_75", "sm_80", "sm_90", "sm_99", "sm_90b", "SM_90")


@dataclass(frozen=True)
class Illegal:
    """A changed program. kind: of the change. change: the old and the new text. opcode: of the changed line."""

    seed: str
    kind: str
    change: str
    opcode: str
    text: str


def illegal(seed: str, capability: int, weights: Mapping[str, float], target: str) -> Illegal:
    """The changed program of a seed: a small program of one statement, with one change."""
    draw = random.Random(seed)
    text = text_of([small(seed, capability, weights)], target)
    while True:
        kind = draw.choice(tuple(CHANGES))
        made = CHANGES[kind](draw, text)
        if made is not None and made.text != text:
            return replace(made, seed=seed, kind=kind)


def small(seed: str, capability: int, weights: Mapping[str, float]) -> RandomProgram:
    """A legal program of one statement of a family, with the statements that it needs."""
    from ptxdiff.fuzz.generate import NEEDS

    draw = random.Random(f"small {seed}")
    usable = [n for n, w in weights.items() if w > 0 and NEEDS.get(n, 80) <= capability]
    (name,) = draw.choices(usable, [weights[n] for n in usable])
    held: Held = {"r": [Variable("r", k) for k in range(INPUTS)]}
    statements = [shaped(draw, s, held) for s in FIRST]
    last = shaped(draw, draw.choice(FAMILIES[name]), held)
    results = [w for w in last.writes if w.kind == "r"]
    if not results:  # convert the result to a 32-bit word
        ends = {"h": "cvt.u32.u16 <r=>, <h>;", "p": "selp.b32 <r=>, 1, 0, <p>;", "d": "cvt.u32.u64 <r=>, <d>;",
                "f": "mov.b32 <r=>, <f>;", "e": "cvt.rzi.u32.f64 <r=>, <e>;", "s": "mov.b32 <r=>, <s>;",
                "b": "mov.b32 <r=>, <b>;"}  # fmt: skip
        kept = next((w.kind for w in last.writes), "p")
        statements += [last, shaped(draw, ends[kept], held, newest=True)]
        results = list(statements[-1].writes)
    else:
        statements.append(last)
    return without(RandomProgram(tuple(statements), (results[-1], "0", "0", "0")), range(0))


# changes ---------------------------------------------------------------------------------------------------------

Change = Callable[[random.Random, str], Illegal | None]
CHANGES: dict[str, Change] = {}
_INSTRUCTION = re.compile(
    r"^(?P<guard>@!?\S+ )?(?P<opcode>[a-z]\w*)(?P<words>(?:\.[\w:]+)*) (?P<operands>[^;]*);", re.M
)
_REGISTER = re.compile(r"%[a-z]+\d+")


def _change(kind: str) -> Callable[[Change], Change]:
    def added(change: Change) -> Change:
        CHANGES[kind] = change
        return change

    return added


def _swapped(text: str, begin: int, end: int, new: str, opcode: str = "") -> Illegal:
    old = text[begin:end]
    return Illegal("", "", f"{old!r} by {new!r}", opcode, text[:begin] + new + text[end:])


def _instruction(draw: random.Random, text: str) -> re.Match[str]:
    return draw.choice(list(_INSTRUCTION.finditer(text)))


def _drawn_word(draw: random.Random, found: re.Match[str]) -> tuple[int, int] | None:
    """The place of a random modifier of an instruction, including its dot; None if it has none."""
    modifiers = list(re.finditer(r"\.[\w:]+", found["words"]))
    if not modifiers:
        return None
    one = draw.choice(modifiers)
    return found.start("words") + one.start(), found.start("words") + one.end()


@_change("another modifier")
def _other_word(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    span = _drawn_word(draw, instruction)
    if span is None:
        return None
    kinds = _TYPES if text[span[0] + 1 : span[1]] in _TYPES else _WORDS
    return _swapped(text, *span, f".{draw.choice(kinds)}", instruction["opcode"])


@_change("a modifier missing")
def _no_word(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    span = _drawn_word(draw, instruction)
    return _swapped(text, *span, "", instruction["opcode"]) if span else None


@_change("a modifier more")
def _more_words(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    span = _drawn_word(draw, instruction)
    word = draw.choice((*_WORDS, *_TYPES))
    return _swapped(text, span[0], span[0], f".{word}", instruction["opcode"]) if span else None


@_change("a modifier twice")
def _word_twice(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    span = _drawn_word(draw, instruction)
    return _swapped(text, span[1], span[1], text[slice(*span)], instruction["opcode"]) if span else None


def _operands(found: re.Match[str]) -> list[tuple[int, int]]:
    """The places of an instruction's operands, split at commas outside brackets."""
    places, depth, begin = [], 0, found.start("operands")
    for at in range(found.start("operands"), found.end("operands") + 1):
        letter = found.string[at] if at < found.end("operands") else ","
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            places.append((begin, at))
            begin = at + 1
    return places


@_change("an operand missing")
def _no_operand(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    places = _operands(instruction)
    begin, end = draw.choice(places)
    if len(places) < 2:
        return None
    return _swapped(text, begin - (begin > places[0][0]), end + (begin == places[0][0]), "", instruction["opcode"])


@_change("an operand twice")
def _operand_twice(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    begin, end = draw.choice(_operands(instruction))
    return _swapped(text, end, end, "," + text[begin:end], instruction["opcode"])


@_change("another operand")
def _other_operand(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    begin, end = draw.choice(_operands(instruction))
    registers = sorted(set(_REGISTER.findall(text)))
    new = draw.choice((*registers, "%nowhere", "%tid", "%tid.x", "%tid.w", "%tid.q", "%laneid", "_", "p0_in", "[%in]"))
    return _swapped(text, begin, end, f" {new}", instruction["opcode"])


@_change("a constant operand")
def _constant(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    begin, end = draw.choice(_operands(instruction))
    return _swapped(text, begin, end, f" {draw.choice(_CONSTANTS)}", instruction["opcode"])


@_change("an operand in other marks")
def _marks(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    begin, end = draw.choice(_operands(instruction))
    old = text[begin:end].strip()
    marks = ("[{}]", "{{{}}}", "{{{}, {}}}", "-{}", "!{}", "({})", "{}|{}", "{}.x", "{}+4", "@{}", "{}[0]")
    return _swapped(text, begin, end, " " + draw.choice(marks).format(old.strip("[]{}"), old), instruction["opcode"])


@_change("a guard")
def _guard(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    registers = sorted(set(re.findall(r"%[a-z]+\d+", text)))
    return _swapped(
        text, instruction.start(), instruction.start(), f"@{draw.choice(('', '!', '-'))}{draw.choice(registers)} "
    )


@_change("another opcode")
def _opcode(draw: random.Random, text: str) -> Illegal | None:
    one, other = _instruction(draw, text), _instruction(draw, text)
    new = draw.choice((other["opcode"], one["opcode"].upper(), f"{one['opcode']}x", "vadd", "tex", "call"))
    return _swapped(text, one.start("opcode"), one.end("opcode"), new, one["opcode"])


@_change("a register by another name")
def _renamed(draw: random.Random, text: str) -> Illegal | None:
    """Rename a register everywhere, including its declaration."""
    old, new = draw.choice(sorted(set(_REGISTER.findall(text)))), draw.choice(_NAMES)
    return Illegal("", "", f"{old!r} everywhere by {new!r}", ".reg", re.sub(rf"{old}\b", lambda _: new, text))


_DECLARED = re.compile(r"\.reg \.(\w+) ([^;]*);")


@_change("a declaration of another type")
def _declared(draw: random.Random, text: str) -> Illegal | None:
    declaration = draw.choice(list(_DECLARED.finditer(text)))
    return _swapped(
        text,
        declaration.start(1),
        declaration.end(1),
        draw.choice((*_TYPES, "v2 .b32", "align 4 .b32", "b128")),
        ".reg",
    )


@_change("a declaration of other names")
def _declared_names(draw: random.Random, text: str) -> Illegal | None:
    declaration = draw.choice(list(_DECLARED.finditer(text)))
    name = declaration[2].split(",")[0].strip()
    spellings = (
        "{0}, {0}",
        "{0}<0>",
        "{0}<4>",
        "{0}<-1>",
        "{0}[4]",
        "{0} = 1",
        "{0},",
        "",
        "%other",
        "{0}<4294967296>",
    )
    return _swapped(text, declaration.start(2), declaration.end(2), draw.choice(spellings).format(name), ".reg")


@_change("a declaration twice")
def _declared_twice(draw: random.Random, text: str) -> Illegal | None:
    declaration = draw.choice(list(_DECLARED.finditer(text)))
    return _swapped(
        text,
        declaration.end(),
        declaration.end(),
        draw.choice((f" {declaration[0]}", f" {{ {declaration[0]} }}")),
        ".reg",
    )


@_change("a line missing")
def _no_line(draw: random.Random, text: str) -> Illegal | None:
    lines = text.split("\n")
    number = draw.choice([n for n, line in enumerate(lines) if line.strip()])
    changed = "\n".join(lines[:number] + lines[number + 1 :])
    return Illegal("", "", f"{lines[number]!r} by nothing", lines[number].split(" ")[0].split(".")[0], changed)


@_change("a line twice")
def _line_twice(draw: random.Random, text: str) -> Illegal | None:
    lines = text.split("\n")
    number = draw.choice([n for n, line in enumerate(lines) if line.strip()])
    changed = "\n".join([*lines[:number], lines[number], *lines[number:]])
    return Illegal("", "", f"{lines[number]!r} twice", lines[number].split(" ")[0].split(".")[0], changed)


@_change("a character missing")
def _no_character(draw: random.Random, text: str) -> Illegal | None:
    offset = draw.choice([m.start() for m in re.finditer(r"[;,.{}\[\]()@%!:]", text)])
    return _swapped(text, offset, offset + 1, "", text[offset])


@_change("a character more")
def _more_characters(draw: random.Random, text: str) -> Illegal | None:
    offset = draw.choice([m.end() for m in re.finditer(r"[;,.{}\[\]()]|\w\b", text)])
    return _swapped(text, offset, offset, draw.choice(";,.{}[]()@%!:\\\"'#?~ä"), "")


@_change("a label")
def _label(draw: random.Random, text: str) -> Illegal | None:
    instruction = _instruction(draw, text)
    spellings = (
        "bra nowhere;\n",
        "x: x:\n",
        "bra %r0;\n",
        "x:\n{ x: }\nbra x;\n",
        "bra.uni p0;\n",
        "%r0:\n",
        "x:\n",
        "bra;\n",
    )
    return _swapped(text, instruction.start(), instruction.start(), draw.choice(spellings), "bra")


@_change("another parameter")
def _parameter(draw: random.Random, text: str) -> Illegal | None:
    changes = (
        (r"\.param \.u64 p0_in", ".param .u32 p0_in", ".param .b64 p0_in", ".param .f64 p0_in", ".reg .u64 p0_in",
         ".param .u64 p0_out", ".param .pred p0_in", ".param .align 3 .u64 p0_in", ".param .u64 .ptr p0_in",
         ".param .u64 p0_in[0]", ".param .b8 p0_in[8]", ".u64 p0_in", ".param .u64 .ptr .global .align 3 p0_in"),
        (r"\[p0_in\]", "[p0_in+4]", "[p0_in+-8]", "[p0_inn]", "p0_in", "[p0_in+8]", "[p0_in][0]", "[p0_in+0x0]"),
        (r"ld\.param\.u64 %in", "ld.param.u32 %in", "ld.param.b64 %in", "ld.param.f64 %in", "ld.u64 %in",
         "ld.param.v2.u32 %in", "ld.global.u64 %in"),
    )  # fmt: skip
    pattern, *new = draw.choice(changes)
    match = re.search(pattern, text)
    return _swapped(text, *match.span(), draw.choice(new), ".param") if match else None


@_change("a directive")
def _directive(draw: random.Random, text: str) -> Illegal | None:
    changes: tuple[tuple[str, Sequence[str]], ...] = (
        (
            r"\.maxntid \d+",
            (".maxntid 0", ".maxntid 2048", ".maxntid 8,8,8,8", ".reqntid 128, .maxntid 128",
             ".minnctapersm",
             ".maxntid 128 .reqntid 64", ".maxntid", ".maxnreg 16", ".noreturn", ".pragma", ".maxnreg -1"),
        ),
        (r"\.address_size \d+", ("", ".address_size 32", ".address_size 48", ".address_size 64 .address_size 64")),
        (r"\.version [\d.]+", (".version 1.0", ".version 99.0", ".version 8", "", ".version 8.1.1", ".version 6.0")),
        (r"\.target \w+", (*(f".target {t}" for t in _TARGETS), "", ".target", ".target sm_80, sm_90")),
        (r"\.visible \.entry", (".entry", ".visible .func", ".extern .entry", ".weak .entry", ".visible .weak .entry")),
        (r"p0\(", ("p0 (", "0p(", "add(", "%p0(", "p0_in(", "$p(", "(")),
    )  # fmt: skip
    pattern, new = draw.choice(changes)
    match = re.search(pattern, text)
    return _swapped(text, *match.span(), draw.choice(new), match[0].split(" ")[0]) if match else None
