"""A fault of ptxas in words, for a reader who has never met one: what it is, where to report it, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ptxdiff.model.assemblers import TRITONS_LEVEL, PtxasChoice
from ptxdiff.records import Key
from ptxdiff.running.dump import file_name
from ptxdiff.running.ptxasfault import PtxasBlame

_EVIDENCE = {
    "confirmed": "by the emulator, with instructions that hardware has confirmed",
    "specification": "by the emulator, from the PTX ISA's text",
}
_WHAT = {
    "wrong": "makes machine code that gives other bits than this PTX means",
    "stopped": "makes machine code that stops the device, where this PTX does not stop it",
    "crashed": "crashes on this PTX, instead of assembling it or reporting an error",
    "hung": "does not end on this PTX",
}
_TITLES = {
    "wrong": "gives wrong results", "stopped": "makes code that stops the GPU", "crashed": "crashes", "hung": "hangs",
}  # fmt: skip
_FOR_TRITON = "Triton takes it from TRITON_PTXAS_PATH and TRITON_PTXAS_BLACKWELL_PATH, which one by target and release"
_LAUNCHED = ("wrong", "stopped")
WIDTH = 12


def in_brief(blame: PtxasBlame) -> str:
    """A few words, for one line: `ptxas 12.9.86 -O3 is at fault, ptxas 12.9.86 -O0 is right`."""
    ends = "is right" if blame.kind in _LAUNCHED else "assembles it"
    return f"{blame.faulty.name} is at fault" + (f", {blame.right.name} {ends}" if blame.right else "")


def message_lines(blame: PtxasBlame, attachment: str) -> list[str]:
    """The lines of a message. attachment: where the PTX is, or how to get it."""
    lines = [f"  diagnosis ptxas: the assembler is at fault, not this case: {blame.faulty.name} {_WHAT[blame.kind]}"]
    for name, text in _rows(blame, attachment):
        lines.append(f"    {name:<{WIDTH}}{text}".rstrip())
    return lines


def _rows(blame: PtxasBlame, attachment: str) -> list[tuple[str, str]]:
    rows = [
        ("what it is", "ptxas is NVIDIA's assembler: it turns PTX, which compilers write, into a GPU's machine code."),
        ("", "It optimises, and has mistakes as any compiler has. Nothing in the kernel's source is wrong."),
        ("at fault", f"{blame.faulty.label}, {blame.faulty.path}"),
    ]
    if blame.right is not None:
        does = "gives the emulator's bits for the same PTX, on all inputs"
        rows.append(("right", f"{blame.right.label}: {does if blame.kind in _LAUNCHED else 'assembles the same PTX'}"))
    rows += _values(blame)
    if blame.first is not None:
        rows.append(("", f"output {blame.first.output}, code {blame.first.index}; {blame.differ} codes differ in all"))
    rows += _known_by(blame)
    rows += [("work round" if n == 0 else "", text) for n, text in enumerate(work_round(blame))]
    rows.append(("report to", "NVIDIA: developer.nvidia.com/bugs (with an account there), a bug of CUDA's ptxas"))
    if blame.faulty.bundled:
        words = "Triton, which carries this ptxas: an issue at github.com/triton-lang/triton, so that others are warned"
        rows.append(("", words))
    rows += [("title", title(blame)), ("attach", attachment)]
    if blame.smaller:
        rows.append(("", "it is reduced to the part that shows the fault, and takes the kernel's own arguments"))
    rows.append(("say also", "your GPU and driver (nvidia-smi shows both), and where ptxas comes from"))
    rows.append(("by hand", command(blame, blame.faulty, "wrong")))
    if blame.right is not None:
        rows.append(("", command(blame, blame.right, "right")))
        shown = "; nvdisasm -c shows the machine code of each" if blame.kind in _LAUNCHED else ""
        rows.append(("", f"kernel.ptx is the attached file{shown}"))
    return rows


def _known_by(blame: PtxasBlame) -> list[tuple[str, str]]:
    """Why ptxas is to blame, for a reader who doubts it."""
    if blame.right is None or blame.kind not in _LAUNCHED:
        return []
    own = blame.faulty.name
    does = "stops the device" if blame.kind == "stopped" else "gives others, twice the same"
    return [
        ("known by", "three opinions on one PTX: ptxdiff's emulator runs it, as NVIDIA's PTX ISA defines each"),
        ("", f"instruction; the machine code of {blame.right.name} gives the same bits, and that of {own} {does}"),
    ]


def title(blame: PtxasBlame) -> str:
    """A headline for a report of the fault."""
    right = f", {blame.right.name} does not" if blame.right else ""
    return f"{blame.faulty.name} {_TITLES[blame.kind]} for {blame.target}{right}"


def _values(blame: PtxasBlame) -> list[tuple[str, str]]:
    """The first code that differs: its inputs, and the result of each assembler and of the emulator."""
    if blame.first is None:
        return []
    rows = [(f"input {n}", f"{b.bits}  {b.value}") for n, b in blame.first.inputs.items()]
    rows.append(("emulator", f"{blame.first.expected.bits}  {blame.first.expected.value}  {_evidence(blame)}"))
    rows.append((f"-O{blame.faulty.level}", f"{blame.first.got.bits}  {blame.first.got.value}  on the device"))
    if blame.right is not None:
        same = f"-O{blame.right.level}" if blame.right.digest == blame.faulty.digest else "the other"
        rows.append((same, f"{blame.first.expected.bits}  {blame.first.expected.value}  on the device"))
    return rows


def _evidence(blame: PtxasBlame) -> str:
    return _EVIDENCE.get(blame.evidence, "by the emulator")


def command(blame: PtxasBlame, by: PtxasChoice, name: str) -> str:
    """The command that assembles the PTX by hand."""
    return shlex.join([by.path, f"-O{by.level}", *blame.options, "kernel.ptx", "-o", f"{name}.cubin"])


def work_round(blame: PtxasBlame) -> list[str]:
    """What a user can do until ptxas is repaired; first the level or program that is known to be right."""
    lines = []
    right = blame.right
    if right is not None and right.digest == blame.faulty.digest:
        level = f"-O{right.level}"
        lines.append(
            f"assemble at {level}: ptx_options='{level}' among a Triton kernel's options, nvcc -Xptxas {level}"
        )
        lines.append(f"it may be slower then: ptxdiff speed NAME --opt={right.level} --opt=3 shows both times")
        if right.level == 0:
            lines.append("for all of Triton's kernels: DISABLE_PTXAS_OPT=1")
    elif right is not None:
        lines.append(f"assemble with {right.name}, {right.path}; {_FOR_TRITON}")
    if right is None or right.digest == blame.faulty.digest:
        lines.append(
            f"{'or ' * bool(lines)}another ptxas, a newer CUDA toolkit's say; try it here first with "
            f"--ptx-assembler=PATH --ptx-opt={TRITONS_LEVEL}"
        )
        lines.append(_FOR_TRITON)
    lines.append("or write the instructions in another way, and run this case again")
    return lines


def attached(folder: Path | None, key: Key, blame: PtxasBlame) -> str:
    """Write the PTX to a folder, and return where it is; without a folder, how to get it."""
    if folder is None:
        return "the PTX: run the command behind 'repeat' with --ptx-dump=DIR, which writes it to that folder"
    path = folder / file_name(key).replace(".npz", ".ptx")
    try:
        path.write_text(_commented(blame), encoding="utf-8")
    except OSError as e:
        return f"the PTX, which --ptx-dump could not write to {path}: {e.strerror}"
    return str(path)


def _commented(blame: PtxasBlame) -> str:
    """The PTX, with comments at its head that say what it shows."""
    words: Sequence[str] = [title(blame), f"{blame.faulty.name} {_WHAT[blame.kind]}", in_brief(blame), *blame.launch]
    if blame.smaller:
        words = [*words, "reduced to the part that shows the fault; parameters and launch are the kernel's own"]
    rows = [f"{name}: {text}" for name, text in _values(replace(blame, first=blame.of_smaller or blame.first)) if name]
    by_hand = [command(blame, by, name) for by, name in ((blame.faulty, "wrong"), (blame.right, "right")) if by]
    return "".join(f"// {line}\n" for line in (*words, *rows, *by_hand)) + blame.ptx
