"""The files of a campaign: for each finding the PTX, a JSON description, a case file and the machine code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptxdiff.fuzz.assemblers import Ptxas
from ptxdiff.fuzz.campaign import finding_of
from ptxdiff.fuzz.execution import THREADS, emulated, inputs_of
from ptxdiff.fuzz.judge import PtxasFault
from ptxdiff.fuzz.program import BLOCK, INPUTS, OUTPUTS
from ptxdiff.triton.assemble import Assembly, Disassembly, disassemble
from ptxdiff.triton.targets import tool

JOURNAL = "journal.jsonl"

_CASE = '''"""{title}

{story}
"""

import json
from pathlib import Path

import numpy as np

from ptxdiff import Case, PtxasFailure, generated, numpy_reference, only, ptx
from ptxdiff.references.formats import U32

FOLDER = Path(__file__).parent
PROGRAM = (FOLDER / "program.ptx").read_text()
WORDS = json.loads((FOLDER / "words.json").read_text())
INPUTS, EXPECTED = (np.array(WORDS[name], np.uint32) for name in ("inputs", "expected"))


def generate(sizes, rng):
    """The inputs on which the fault was found."""
    return {{"x": INPUTS}}


@numpy_reference
def reference(x):
    """The outputs that the PTX ISA defines for the inputs of the finding, as the emulator computed them then."""
    if not np.array_equal(x.reshape(INPUTS.shape), INPUTS):
        raise ValueError("words.json has the expected outputs for the inputs of its finding alone")
    return EXPECTED.astype(np.int64)


case = Case(
    inputs={{"x": U32["T", {inputs}]}},
    outputs={{"y": U32["T", {outputs}]}},
    reference=reference,
    generate=generate,
    where={{"x": generated}},
    sizes=[{{"T": {threads}}}],
    variants={{
        "program": ptx(
            PROGRAM,
            grid={blocks},
            block={block},
            parameters=["x", "y"],
            expected_failure={expected},
        ),
    }},
    targets=only("{target}"),
)
'''

_ENDS = ("wrong", "crashed", "hung")
"""Kinds of findings that get a case file. Others, such as refused programs, have no result that a case can expect."""


def write(folder: Path, findings: Iterable[PtxasFault], assemblers: Sequence[Ptxas], target: str) -> list[Path]:
    """Write a folder for each finding, most frequent first. Existing folders of the same name are overwritten."""
    written = []
    for number, finding in enumerate(sorted(findings, key=lambda f: (f.kind, -f.seen, f.size)), 1):
        subfolder = folder / name_of(finding, number)
        subfolder.mkdir(parents=True, exist_ok=True)
        (subfolder / "program.ptx").write_text(finding.text)
        (subfolder / "finding.json").write_text(json.dumps(asdict(finding), indent=1) + "\n")
        codes = {one.label: sass(finding, one, target) for one in assemblers}
        if finding.kind in _ENDS:
            _write_case(subfolder, finding, target)
            (subfolder / "report.md").write_text(report(finding, codes) + "\n")
        for label, code in codes.items():
            (subfolder / f"{file_stem(label)}.sass").write_text(code)
        written.append(subfolder)
    return written


def file_stem(label: str) -> str:
    """An assembler's label as a file name: `ptxas-12.9.86--O3-1a2b3c4d5e6f`."""
    return re.sub(r"[^\w.-]+", "-", label).strip("-")


def name_of(finding: PtxasFault, number: int) -> str:
    """The name of the finding's folder, such as `03-wrong-shl-add`."""
    opcodes = [o.split(".")[0] for o in finding.skeleton.split()][:4]
    return re.sub(r"[^\w-]", "-", "-".join((f"{number:02}", finding.kind, *opcodes)))


def story(finding: PtxasFault) -> str:
    """An explanation of a finding for readers without previous knowledge: what differs, and what to do."""
    who = " and ".join(finding.assemblers)
    if finding.kind != "wrong":
        told = [f"{who}: {finding.kind}. {finding.words}".strip()]
        if finding.expected != finding.given:
            told.append(f"Words: {_hex(finding.given)}; by the PTX ISA: {_hex(finding.expected)}")
        return "\n".join([*told, finding.first_difference] if finding.first_difference else told)
    differ = next(k for k, (a, b) in enumerate(zip(finding.expected, finding.given, strict=True)) if a != b)
    inputs = ", ".join(f"%r{k} = {w:#010x}" for k, w in enumerate(finding.inputs))
    right = " and ".join(finding.right)
    known_by = [
        "The machine code ran on the CPU, instruction by instruction; no GPU has confirmed it. Each form of machine "
        "instruction that ran gave the bits of PTX elsewhere.",
        finding.first_difference,
    ]
    lines = [
        f"Machine code of {who} gives other bits than this PTX specifies.",
        f"For {inputs} word {differ} of the output is {finding.given[differ]:#010x}; "
        f"by the PTX ISA it is {finding.expected[differ]:#010x}"
        + (f", which {right} gives." if right else "; none of the tried assemblers gives that."),
        *(known_by if finding.interpreted else ()),
        "The PTX is correct; the assembler is wrong. Report program.ptx with this text and the version of ptxas to "
        "NVIDIA (developer.nvidia.com/bugs).",
        f"As a workaround, assemble with {finding.right[0]}, or use other instructions."
        if finding.right
        else "As a workaround, use other instructions.",
    ]
    return "\n".join(lines)


def report(finding: PtxasFault, codes: Mapping[str, str], mechanism: str = "", heading: str = "#") -> str:
    """A finding as a report to NVIDIA, in Markdown. It needs nothing but ptxas and the text.

    codes: the machine code by the label of its assembler, as nvdisasm prints it. mechanism: what the assembler does
    wrong, if somebody has found it. heading: the mark of its title.
    """
    target = next(iter(re.findall(r"^\.target (\w+)", finding.text, re.M)), "")
    faulty, right = finding.assemblers[0], finding.right[0] if finding.right else ""
    lines = [f"{heading} {_version_and_level(faulty)}, {target}: {_TITLES[finding.kind]} {finding.skeleton}", ""]
    if mechanism:
        lines += [mechanism, ""]
    if finding.kind == "wrong":
        by_right = f" ({right} gives it)" if right else ""
        lines += ["One thread's words:", "", "| | word 0 | word 1 | word 2 | word 3 |", "|---|---|---|---|---|"]
        for name, row in (
            ("input", finding.inputs),
            (f"output by the PTX ISA{by_right}", finding.expected),
            (f"output of {faulty}", finding.given),
        ):
            lines.append(f"| {name} | {' | '.join(f'`{w:#010x}`' for w in row)} |")
        ran = "on the CPU, instruction by instruction; no GPU ran it" if finding.interpreted else "on a GPU"
        lines += [
            "",
            f"The machine code ran {ran}. Every thread may have the same input. Kernel `p0` takes two addresses:",
        ]
        lines += [f"{INPUTS} words a thread to read, {OUTPUTS} words a thread to write. One block has {BLOCK} threads."]
    else:
        lines += ["```text", finding.words or "no message", "```"]
    commands = [_by_hand(faulty, target, "wrong"), *([_by_hand(right, target, "right")] if right else [])]
    lines += ["", "```sh", *commands, "```", "", "`program.ptx`:", "", "```text", finding.text.strip(), "```"]
    for label in (faulty, *([right] if right else [])):
        if code := _instructions(codes.get(label, "")):
            lines += ["", f"Machine code of {label}:", "", "```text", *code, "```"]
    return "\n".join(lines)


_TITLES = {"wrong": "wrong bits of", "crashed": "a crash on", "hung": "no end on"}


def _by_hand(label: str, target: str, name: str) -> str:
    """The command that assembles the program. It names ptxas without its path, which is another one elsewhere."""
    options = label.split(" (")[0].split()[2:]
    return f"ptxas {' '.join(options)} --gpu-name={target} program.ptx -o {name}.cubin"


def _instructions(sass: str) -> list[str]:
    """The instructions of nvdisasm's text up to the last exit, without addresses and encodings."""
    code_lines = [line[1].strip() for line in re.finditer(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.+?;)", sass, re.M)]
    ends = [k for k, line in enumerate(code_lines) if line.startswith("EXIT")]
    return code_lines[: ends[-1] + 1] if ends else code_lines


def _hex(words: Sequence[int]) -> str:
    return " ".join(f"{w:#010x}" for w in words)


def _write_case(place: Path, finding: PtxasFault, target: str) -> None:
    inputs = inputs_of(finding.seed)
    fields = {"inputs": inputs.tolist(), "expected": emulated(finding.text, "p0", inputs).tolist()}
    (place / "words.json").write_text(json.dumps(fields) + "\n")
    # Wrong machine code is proved only if another assembler agrees with the emulator; else no failure is expected.
    proved = finding.kind != "wrong" or finding.right
    failing = ", ".join(f'"{a}": "{finding.kind}"' for a in map(_version_and_level, finding.assemblers))
    expected = f'PtxasFailure(assemblers={{{failing}}}, reason="found by ptxdiff fuzz")' if proved else "None"
    title = f"{' and '.join(finding.assemblers)} {finding.kind} on {' '.join(finding.skeleton.split())}."
    case = _CASE.format(
        title=title, story=_in_a_docstring(story(finding)), inputs=INPUTS, outputs=OUTPUTS, threads=THREADS,
        blocks=THREADS // BLOCK, block=BLOCK, target=target, expected=expected,
    )  # fmt: skip
    (place / "case.py").write_text(case)


def _version_and_level(label: str) -> str:
    """The part of a label that a case names: version and level, so that it applies to any build of that release."""
    match = re.match(r"ptxas [\d.]+ -O\d", label)
    return match[0] if match else label


def _in_a_docstring(words: str) -> str:
    """A text without characters that are special in a docstring."""
    return words.replace("\\", "/").replace('"', "'")


def sass(finding: PtxasFault, one: Ptxas, target: str) -> str:
    """The SASS of an assembler for a finding's program, or the reason why there is none."""
    done = one.assemble(finding.text, target)
    if done.ended != "assembled":
        return f"{done.ended}: {done.words}\n"
    disassembled = disassemble(Assembly(done.cubin, {}), str(tool("nvdisasm")))
    return disassembled.text if isinstance(disassembled, Disassembly) else f"{disassembled.words}\n"


# The results in a campaign's folder as plain values ----------------------------------------------------------------
#
# The results in a campaign's folder as plain values, of which `ptxdiff.reports.findings` makes an HTML page.


def facts(folder: Path) -> dict[str, Any]:
    """The contents of the page: findings by skeleton, and groups of refusals, most frequent first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for subfolder, fields in _read(folder, "finding.json"):
        groups.setdefault(fields["skeleton"], []).append(_finding(subfolder, fields))
    ordered = sorted(groups.items(), key=lambda g: (-sum(f["seen"] for f in g[1]), g[0]))
    refusals = [{**fields, "place": subfolder.name} for subfolder, fields in _read(folder, "refusal.json")]
    return {
        "groups": [{"skeleton": name, "findings": findings} for name, findings in ordered],
        "refusals": sorted(refusals, key=lambda r: (-r["seen"], r["signature"])),
    }


def _read(folder: Path, name: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for file in sorted(folder.glob(f"*/{name}")):
        yield file.parent, json.loads(file.read_text(encoding="utf-8"))


def _finding(place: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    rows = zip(fields["expected"], fields["given"], strict=True)
    return {
        **fields,
        "place": place.name,
        "story": story(finding_of(fields)).split("\n"),
        "inputs": [f"{w:#010x}" for w in fields["inputs"]],
        "outputs": [(f"{right:#010x}", f"{given:#010x}", right != given) for right, given in rows],
        "sass": [(file.stem, file.read_text(encoding="utf-8")) for file in sorted(place.glob("*.sass"))],
    }
