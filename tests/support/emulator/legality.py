"""Whether instructions are legal, by `emulate`'s tables and by ptxas."""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.binding.builder import Builder
from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.isa.forms import FORMS, Bound, Form
from ptxdiff.emulator.targets import Target
from ptxdiff.emulator.text.parser import parse_asm
from ptxdiff.emulator.text.types import REGISTER_TYPES, TYPES, ScalarType
from ptxdiff.model.targets import version_number
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.targets import tool

isa.load()
TARGETS = [
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_87",
    "sm_89",
    "sm_90",
    "sm_90a",
    "sm_100",
    "sm_100f",
    "sm_100a",
    "sm_103",
    "sm_103f",
    "sm_103a",
    "sm_107",
    "sm_107f",
    "sm_107a",
    "sm_110",
    "sm_110f",
    "sm_110a",
    "sm_120",
    "sm_120f",
    "sm_120a",
    "sm_121",
    "sm_121f",
    "sm_121a",
]
"""Every target from sm_75 on that an assembler in Triton's wheel knows."""
REGISTERS = sorted(REGISTER_TYPES - {"b128"})
COUNT = 8
"""Number of registers of each type that a line may name: `%f32_0` to `%f32_7`."""
CONSTANTS = ("1", "1.0", "0f3F800000")

_ALL = " ".join(f".reg .{t} %{t}_<{COUNT}>;" for t in REGISTERS)
_REGISTER = re.compile(r"%(\w+)_\d")
_ERROR = re.compile(r", line (\d+); (?:error|fatal)\s*: (.*)")
_NARROW = re.compile(r"Program uses 32-bit address on line '(\d+)'")


def assembler(target: str) -> str | None:
    """The ptxas that Triton uses for a target, or None where it is not installed."""
    try:
        path = tool("ptxas" if Target.parse(target).number < 90 else "ptxas-blackwell")
    except NoTriton:
        return None
    return str(path) if path.exists() else None


@cache
def ptx_version(program: str) -> str:
    """The newest PTX version that a ptxas accepts, as its error message gives it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "version.ptx")
        source.write_text(".version 99.0\n")
        error = subprocess.run([program, str(source), "-o", "/dev/null"], capture_output=True, text=True).stderr
    found = re.search(r"current version is '([\d.]+)'", error)
    assert found, error
    return found[1]


def needs(target: str) -> None:
    """Skip if the assembler of a target is not installed, or knows only a PTX version older than our rules."""
    program, rules = assembler(target), "8.7" if Target.parse(target).number < 90 else "9.4"
    if program is None:
        pytest.skip(f"no ptxas for {target}: pip install triton")
    if version_number(ptx_version(program)) < version_number(rules):
        pytest.skip(f"the rules for {target} are those of PTX {rules}; the ptxas here knows {ptx_version(program)}")


def errors_of_ptxas(lines: Sequence[str], target: str) -> list[str | None]:
    """ptxas's error for each line; None if it assembles.

    One run reports the errors of many lines, but not all: a syntax error hides what later passes would find. So the
    refused lines are removed and the others are assembled again, until none is refused. A line on which ptxas crashes
    counts as refused. A line whose error concerns another instruction is assembled again alone: ptxas moves constants
    by a `mov` of its own, and gives it the modifiers of a line that it refused before.
    """
    words: dict[int, str] = {}
    left = list(range(len(lines)))
    while left:
        refused = _assemble([lines[i] for i in left], target)
        if not refused:
            break
        words |= {left[at]: text for at, text in refused.items()}
        left = [i for i in left if i not in words]
    for i in [i for i, text in words.items() if _of_another(lines[i], text)]:
        alone = _assemble([lines[i]], target)
        if alone and "__cuda_" not in alone[0]:
            words[i] = alone[0]
        else:
            del words[i]
    return [words.get(i) for i in range(len(lines))]


def _of_another(line: str, error: str) -> bool:
    """Whether ptxas's error may concern a `mov` that is not in the line.

    An error with "Feature" does not name its instruction; ptxas makes a `mov` only of operands that are not our
    registers.
    """
    if "'__cuda_" in error:  # without optimisation ptxas calls a function for `vote`, and does not always link it
        return True
    if line.startswith("mov"):
        return False
    odd = re.search(r"\w", _REGISTER.sub("", line.partition(" ")[2]))
    return "'mov'" in error or "to mov" in error or (error.startswith("Feature") and odd is not None)


def _assemble(lines: Sequence[str], target: str) -> dict[int, str]:
    """The errors of one run of ptxas, by index of the line; empty if all lines assemble."""
    head = f"{_ALL}\n"
    run = _run(head + "".join(f"{{ {line} }}\n" for line in lines), target)
    if run.returncode == 0:
        return {}
    places = {int(m[1]) - _HEADER.count("\n") - 2: m[2] for m in _ERROR.finditer(run.stderr)}
    if not places:  # a fatal error without a line, after a warning with one
        places = {int(m[1]) - _HEADER.count("\n") - 2: m[0] for m in _NARROW.finditer(run.stderr)}
    found = {at: text for at, text in places.items() if 0 <= at < len(lines)}
    if run.returncode < 0 and not found:
        if len(lines) == 1:
            return {0: "ptxas crashes"}
        half = len(lines) // 2
        upper = _assemble(lines[half:], target)
        return _assemble(lines[:half], target) | {half + at: text for at, text in upper.items()}
    assert found, run.stderr[:2000]
    return found


_HEADER = ".version {}\n.target {}\n.address_size 64\n.entry k(.param .u64 memory) {{\n"


def _run(body: str, target: str, level: str = "-O0") -> subprocess.CompletedProcess[str]:
    """One run of ptxas on a kernel."""
    program = assembler(target)
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "lines.ptx")
        source.write_text(_HEADER.format(ptx_version(program), target) + body + "ret;\n}\n")
        command = [program, level, f"-arch={target}", str(source), "-o", "/dev/null"]
        return subprocess.run(command, capture_output=True, text=True)


def refused_in_use(lines: Sequence[str], target: str) -> dict[str, str]:
    """ptxas's errors by line, if the registers of each line are loaded before it and stored after it.

    Accepted lines are left out. ptxas makes no code of an instruction whose result is not used, and may so accept an
    instruction that would crash it.
    """
    for level in ("-O0", "-O3"):
        run = _run("\n".join([_ALL, _IN_USE, *map(_used, lines), ""]), target, level)
        if run.returncode and len(lines) == 1:
            words = run.stderr.splitlines() or ["ptxas crashes"]
            return {lines[0]: f"{words[0]} ({level}, where the result is used)"}
        if run.returncode:
            half = len(lines) // 2
            return refused_in_use(lines[:half], target) | refused_in_use(lines[half:], target)
    return {}


_IN_USE = ".reg .b64 %at; ld.param.u64 %at, [memory]; .reg .b32 %word;"


def _used(line: str) -> str:
    """A line with loads of all its registers before it and stores of them after it."""
    before, after = [], []
    for number, name in enumerate(dict.fromkeys(m[0] for m in _REGISTER.finditer(line))):
        kind, place = TYPES[name[1:-2]], f"[%at+{8 * number}]"
        if kind.kind == "pred":
            before.append(f"ld.global.b32 %word, {place}; setp.ne.b32 {name}, %word, 0;")
            after.append(f"selp.b32 %word, 1, 0, {name}; st.global.b32 {place}, %word;")
        else:
            before.append(f"ld.global.b{kind.width} {name}, {place};")
            after.append(f"st.global.b{kind.width} {place}, {name};")
    return " ".join([*before, f"{{ {line} }}", *after])


def error_of_emulate(line: str, target: str, elementwise: bool = True) -> str | None:
    """The emulator's error for a line in a snippet, or in a whole kernel; None if it would run."""
    used = dict.fromkeys(_REGISTER.findall(line))
    try:
        tree, source = parse_asm(" ".join(f".reg .{t} %{t}_<{COUNT}>;" for t in used) + line, 0)
        builder = Builder(source, Target.parse(target), elementwise)
        builder.add(tree)
        builder.build()
    except PtxError as error:
        return str(error).splitlines()[0]
    return None


def disagreements(lines: Sequence[str], target: str, elementwise: bool = True) -> list[str]:
    """The lines on which the two verdicts differ, with the error of the side that refuses.

    elementwise: whether they are asm alone; else they are lines of a whole kernel.
    """
    found = []
    for line, ptxas in zip(lines, errors_of_ptxas(lines, target), strict=True):
        ours = error_of_emulate(line, target, elementwise)
        if ours and ptxas is None:
            ptxas = refused_in_use([line], target).get(line)
        if (ptxas is None) != (ours is None):
            said = f"ptxas refuses: {ptxas}" if ours is None else f"emulate refuses: {ours}"
            found.append(f"{target}  {line}  {said}")
    return found


def check(lines: Sequence[str], target: str) -> None:
    """Fail if the emulator and ptxas differ on a line, with the error of the side that refuses."""
    needs(target)
    found = disagreements(lines, target)
    assert not found, summary(found)


def summary(found: Sequence[str], shown: int = 20) -> str:
    """Disagreements in a few lines: one of each opcode and reason, with the number of the same kind."""
    groups: dict[tuple[str, str], list[str]] = {}
    for text in found:
        _, line, said = text.split("  ", 2)
        reason = re.sub(r"\S*[.:]\S*", "", said)
        groups.setdefault((line.split(".")[0], reason), []).append(text)
    texts = [f"{len(g)} x {g[0]}" for g in sorted(groups.values(), key=len, reverse=True)]
    return "\n".join([f"{len(found)} disagreements of {len(texts)} kinds", *texts[:shown]])


def scalar_forms() -> list[Form]:
    """The forms whose operands are declared; other tests check the forms that the machine runs itself."""
    return [f for forms in FORMS.values() for f in forms if f.operands]


def written(bound: Bound, spelling: str = "", replace: tuple[int, str] | None = None) -> str:
    """An instruction with a register of its own for each operand; `replace` puts another text for operand i.

    The registers are untyped (predicates apart), which every operand of their size accepts.
    """
    texts = [_operand(bound.type_of(spec), i, spec.constant) for i, spec in enumerate(bound.form.operands)]
    if replace:
        texts[replace[0]] = replace[1]
    return f"{spelling or bound.spelling} {_joined(bound.form, texts)};"


def _operand(kind: ScalarType, number: int, constant: bool) -> str:
    if constant:
        return "1"
    return f"%pred_{number}" if kind.kind == "pred" else f"%b{kind.width}_{number}"


def _joined(form: Form, texts: list[str]) -> str:
    count = len(form.destinations)
    braced = [t for t, s in zip(texts, form.operands, strict=True) if s.vector]
    parts = ["|".join(texts[:count])]
    for text, spec in zip(texts[count:], form.sources, strict=True):
        if not spec.vector:
            parts.append(text)
        elif text == braced[0]:
            parts.append("{" + ", ".join(braced) + "}")
    return ", ".join(parts)


def spelled(forms: Iterable[Form]) -> list[str]:
    """Every way to write the forms."""
    return list(dict.fromkeys(written(b) for f in forms for b in f.spellings()))


def combinations(form: Form) -> Iterator[Bound]:
    """Every choice of modifiers, also those that the form excludes."""
    options = [([None] if g.optional else []) + list(g.choices) for g in form.groups]
    return (Bound(form, tuple(chosen)) for chosen in itertools.product(*options))


def mutated(form: Form, limit: int) -> list[str]:
    """Neighbours of a form's spellings that are mostly illegal, `limit` of them spread evenly.

    They have modifiers that exclude each other, or lack one, or have one of another form of the opcode, added or in
    the place of another.
    """
    vocabulary = list(dict.fromkeys(c for f in FORMS[form.opcode] for g in f.groups for c in g.choices))
    lines: dict[str, None] = {}
    for bound in _spread(list(combinations(form)), limit):
        lines[written(bound)] = None
        parts = [c for c in bound.chosen if c]
        for i in range(len(parts)):
            lines[written(bound, _spell(form, parts[:i] + parts[i + 1 :]))] = None
        for word in vocabulary:
            kind = TYPES.get(word)
            if word not in parts and kind is None:
                lines[written(bound, _spell(form, [word, *parts]))] = None
            for i, part in enumerate(parts):
                if word != part and (kind is None) == (part not in TYPES) and _same_size(part, word):
                    lines[written(bound, _spell(form, [*parts[:i], word, *parts[i + 1 :]]))] = None
    return _spread(list(lines), limit)


def with_needless(form: Form) -> list[str]:
    """The plainest spelling with modifiers of other instructions added, and with types that are not numbers."""
    bound = next(iter(form.spellings()))
    parts = [c for c in bound.chosen if c]
    lines = []
    needless = ["finite", "notanumber", "normal.finite", "number.number", "pred", "texref.pred", "acc::f32.rank"]
    for words in (w.split(".") for w in [*needless, "rank.box_dim", "assume_large", "swizzle_mode.infinite", "cta"]):
        lines += [written(bound, _spell(form, [*words, *parts])), written(bound, _spell(form, [*parts, *words]))]
    return lines


def _same_size(old: str, new: str) -> bool:
    return old not in TYPES or TYPES[old].width == TYPES[new].width


def _spell(form: Form, parts: list[str]) -> str:
    return ".".join([form.opcode, *parts])


def _spread(items: list[Any], limit: int) -> list[Any]:
    """At most `limit` items at even distances."""
    step = max(1, -(-len(items) // limit))
    return items[::step]


def operand_variations(form: Form) -> list[str]:
    """The plainest spelling with every register type and some constants for each operand in turn.

    f16x2 registers are left out for integers: ptxas accepts them in most places but not in all.
    """
    bound = next(iter(form.spellings()))
    lines = []
    for i, spec in enumerate(form.operands):
        kinds = [t for t in REGISTERS if t != "f16x2" or bound.type_of(spec).kind == "p"]
        lines += [written(bound, replace=(i, text)) for text in [*(f"%{t}_{i}" for t in kinds), *CONSTANTS]]
    return lines


ODD = ("_", "!%pred_{0}", "{{%b32_{0}, %b32_5}}", "%b32_{0}|%b32_5", "-1", "0xFFFFFFFFFF", "0d3FF0000000000000", "1.5")
ODD += ("!1", "%laneid", "%tid.x", "%clock64", "WARP_SZ", "-%b32_{0}", "%b32_{0}.b0", "[%b64_{0}]", "nowhere")


def odd_operands(form: Form) -> list[str]:
    """The plainest spelling with an unusual text for each operand in turn: no register, or not only one."""
    bound = next(iter(form.spellings()))
    return [written(bound, replace=(i, text.format(i))) for i in range(len(form.operands)) for text in ODD]
