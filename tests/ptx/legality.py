"""Two verdicts on many instructions: that of `emulate`'s tables and that of ptxas."""

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

from harness.model.targets import version_number
from harness.ptx import isa
from harness.ptx.binding import control, moves  # noqa: F401  they register binders
from harness.ptx.binding.builder import Builder
from harness.ptx.errors import PtxError
from harness.ptx.isa.forms import FORMS, Bound, Form
from harness.ptx.targets import Target
from harness.ptx.text.parser import parse_asm
from harness.ptx.text.types import REGISTER_TYPES, TYPES, ScalarType
from harness.triton.installation import NoTriton
from harness.triton.targets import tool

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
"""Registers of every type that a line may name: `%f32_0` to `%f32_7`."""
CONSTANTS = ("1", "1.0", "0f3F800000")

_ALL = " ".join(f".reg .{t} %{t}_<{COUNT}>;" for t in REGISTERS)
_REGISTER = re.compile(r"%(\w+)_\d")
_ERROR = re.compile(r", line (\d+); (?:error|fatal)\s*: (.*)")


def assembler(target: str) -> str | None:
    """The ptxas that Triton uses for a target, or None where it is not installed."""
    try:
        path = tool("ptxas" if Target.parse(target).number < 90 else "ptxas-blackwell")
    except NoTriton:
        return None
    return str(path) if path.exists() else None


@cache
def ptx_version(program: str) -> str:
    """The newest PTX version that a ptxas takes, in its own words."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "version.ptx")
        source.write_text(".version 99.0\n")
        told = subprocess.run([program, str(source), "-o", "/dev/null"], capture_output=True, text=True).stderr
    found = re.search(r"current version is '([\d.]+)'", told)
    assert found, told
    return found[1]


def needs(target: str) -> None:
    """Skip where the assembler of a target is not installed, or knows less than the rules that are held to it."""
    program, rules = assembler(target), "8.7" if Target.parse(target).number < 90 else "9.4"
    if program is None:
        pytest.skip(f"no ptxas for {target}: pip install triton")
    if version_number(ptx_version(program)) < version_number(rules):
        pytest.skip(f"the rules for {target} are those of PTX {rules}; the ptxas here knows {ptx_version(program)}")


def told_by_ptxas(lines: Sequence[str], target: str) -> list[str | None]:
    """What ptxas has against each line, None where it assembles.

    One run reports the errors of many lines, but not all: a syntax error hides what later passes would find. So
    the refused lines are taken out and the rest is assembled again, until it goes through. A line on which ptxas
    crashes counts as refused. What is refused for another instruction than its own, is tried again alone: to move a
    constant ptxas makes a `mov`, which gets the modifiers of a line that it refused before.
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
        if alone:
            words[i] = alone[0]
        else:
            del words[i]
    return [words.get(i) for i in range(len(lines))]


def _of_another(line: str, told: str) -> bool:
    """Whether ptxas's words may be about a `mov` that stands nowhere in the line.

    ptxas says "Feature" without the instruction's name; only what is no register of ours becomes a `mov`.
    """
    if line.startswith("mov"):
        return False
    odd = re.search(r"\w", _REGISTER.sub("", line.partition(" ")[2]))
    return "'mov'" in told or "to mov" in told or (told.startswith("Feature") and odd is not None)


def _assemble(lines: Sequence[str], target: str) -> dict[int, str]:
    """The errors of one run of ptxas, by index of the line; empty when all went through."""
    head = f"{_ALL}\n"
    run = _run(head + "".join(f"{{ {line} }}\n" for line in lines), target)
    if run.returncode == 0:
        return {}
    places = {int(m[1]) - _HEADER.count("\n") - 2: m[2] for m in _ERROR.finditer(run.stderr)}
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
    """What ptxas has against lines whose registers are loaded before and stored after each; what passes is left out.

    Of an instruction whose operands and result are nobody's, ptxas makes no code, and so accepts what crashes it.
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
    """A line between loads of all its registers and stores."""
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


def told_by_emulate(line: str, target: str, elementwise: bool = True) -> str | None:
    """What the emulator has against a line in a snippet, or in a whole kernel; None where it would run."""
    used = dict.fromkeys(_REGISTER.findall(line))
    try:
        tree, source = parse_asm(" ".join(f".reg .{t} %{t}_<{COUNT}>;" for t in used) + line, 0)
        builder = Builder(source, Target.parse(target), elementwise)
        builder.add(tree)
        builder.build()
    except PtxError as error:
        return str(error).splitlines()[0]
    return None


def disagreements(lines: Sequence[str], target: str) -> list[str]:
    """The lines on which the two verdicts differ, with the words of the one that refuses."""
    found = []
    for line, ptxas in zip(lines, told_by_ptxas(lines, target), strict=True):
        ours = told_by_emulate(line, target)
        if ours and ptxas is None:
            ptxas = refused_in_use([line], target).get(line)
        if (ptxas is None) != (ours is None):
            said = f"ptxas refuses: {ptxas}" if ours is None else f"emulate refuses: {ours}"
            found.append(f"{target}  {line}  {said}")
    return found


def check(lines: Sequence[str], target: str) -> None:
    """Fail with what the two sides say where they differ."""
    needs(target)
    found = disagreements(lines, target)
    assert not found, summary(found)


def summary(found: Sequence[str], shown: int = 20) -> str:
    """Disagreements in a few lines: one of each opcode and reason, and how many there are of it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for text in found:
        _, line, said = text.split("  ", 2)
        reason = re.sub(r"\S*[.:]\S*", "", said)
        groups.setdefault((line.split(".")[0], reason), []).append(text)
    texts = [f"{len(g)} x {g[0]}" for g in sorted(groups.values(), key=len, reverse=True)]
    return "\n".join([f"{len(found)} disagreements of {len(texts)} kinds", *texts[:shown]])


def scalar_forms() -> list[Form]:
    """The forms whose operands are declared; what the machine does itself is checked elsewhere."""
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
    """Every choice of modifiers, those included that the form excludes."""
    options = [([None] if g.optional else []) + list(g.choices) for g in form.groups]
    return (Bound(form, tuple(chosen)) for chosen in itertools.product(*options))


def mutated(form: Form, limit: int) -> list[str]:
    """Neighbours of a form's spellings that are mostly illegal, `limit` of them spread evenly.

    Modifiers that cannot stand together, one left out, one that other forms of the opcode have put beside the
    others or in another's place.
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
    """The plainest spelling with words of other instructions, and with types of no number."""
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

    Except f16x2 registers as integers, which ptxas takes in most places but not in all.
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
    """The plainest spelling with something unusual for each operand in turn: no register, or not only one."""
    bound = next(iter(form.spellings()))
    return [written(bound, replace=(i, text.format(i))) for i in range(len(form.operands)) for text in ODD]
