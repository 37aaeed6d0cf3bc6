"""Teaches the table of machine instructions: what ptxas makes of each PTX form must give the form's bits.

A module holds one small kernel for each form: it loads the operands, runs the instruction, and stores the results.
ptxas assembles it; the machine code runs, and its bits are compared with the definition of the PTX form, on edge values
and on drawn ones. Each form of the table that ran gets a context: in agreement, or not. Short sequences of PTX, which
ptxas makes one machine instruction of, are taught in the same way (`sequences`).
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ptxdiff.conformance import forms
from ptxdiff.conformance.fetch import CudaContext
from ptxdiff.conformance.forms import FormSnippet, Port
from ptxdiff.conformance.inputs import Columns, Inputs
from ptxdiff.conformance.measure import run_emulated
from ptxdiff.conformance.sequences import SEQUENCES
from ptxdiff.conformance.taught import digest, move_digest
from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.memory.space import Buffer
from ptxdiff.emulator.text.types import TYPES
from ptxdiff.model.targets import capability
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import Computed, RefusedStep, prepared
from ptxdiff.sass.prologue import prologue
from ptxdiff.sass.run import Ran, run_machine_code
from ptxdiff.sass.text import Unsupported
from ptxdiff.sass.words import WordDecoder
from ptxdiff.triton.targets import assembler, probe, tool
from ptxdiff.triton.tools import run_tool

BLOCK, WARP = 128, 32
EDGES, DRAWN = 384, 128
"""Inputs of each form, edge values and drawn ones; whole blocks."""
LEVELS = (0, 3)
GIVEN = ("registers", "immediate", "parameters")
"""How operands are given: all in registers, the last one as a constant, or all as parameters. Parameters are the same
in all threads, so ptxas computes with them in uniform registers where the target can. A launch runs one input then."""
LAUNCHES = 25
"""Inputs of a form whose operands are parameters."""
UNIFORM = re.compile("|".join((
    r"cvt\.r[nzmp]\.sat\.f(16|32)\.[us](8|16|32)", r"cvt\.r[nzmp]i(\.ftz)?\.sat\.(f32\.f32|f16\.f16)",
    r"cvt\.(rm\.sat\.f16\.f32|f32\.f16)", r"(fma\.rn|max|min|abs|neg)\.(f16|bf16)x2", r"set\.eq\.and\.ftz\.f16\.f16",
    r"m(ad|ul)\.hi\.[us]64", r"mad\.hi\.cc\.[us]64", r"(max|min)\.relu\.s32", r"add\.sat\.s32", r"(bfe\.s|bfi\.b)64",
    r"v(max|min|sub|absdiff)\.s32\.s32\.s32\.(add|min)", r"vsub\.u32\.u32\.u32\.sat\.(add|min)",
    r"vsh[lr]\.u32\.u32\.u32\.clamp\.min", r"two e[54]m[23]x2( from f16x2(\.relu)?)?", r"(max|min) of three relu\.s32",
    r".* between others", r"(upper|last carry|carries|carry) .*", r".* with (two )?(carry|carries|borrow).*",
    r"borrow of .* u(64|128)",
)))  # fmt: skip
"""Forms and sequences that are given as parameters, too: in uniform registers, or with an operand in a constant bank,
they have instructions that no other operands give."""
ALIKE = re.compile(r"cvt\.pack .* onto .*")
"""Sequences that teach nothing below sm_90: there ptxas puts the same into both halves of the register whose upper half
I2IP takes, so they would not tell the halves apart."""
GROUP = 64
"""Forms in one module."""
TOGETHER = 8
"""Modules whose machine code is read together: a start of nvdisasm takes a quarter of a second."""
_SECONDS = 240.0
OPEN = {
    "cvt.f32.f32": "ptxas 12.9 keeps a signalling NaN at -O3, where it moves; at -O0 it adds, which quiets",
    "cvt.f64.f64": "as cvt.f32.f32",
    "madc.hi.sat.s32": "ptxas 13.4 saturates at -O0, and not at -O3, whose bits the definition has",
}
"""Forms that teach nothing, because the ISA leaves bits open and ptxas's levels give different ones."""
FAULTY = dict.fromkeys(
    (f"cvt.{rounding}.ftz.pzo.bf16.f32" for rounding in ("rn", "rz", "rm", "rp")),
    "ptxas 13.4.59 and 13.5.37 write the word that they write without .pzo, at levels 0 and 3",
)
"""Forms that teach nothing, because ptxas drops a modifier of them."""


def _snippet(name: str) -> FormSnippet | None:
    """The asm of a form or of a sequence; None if the form has none."""
    if name not in SEQUENCES:
        return next(iter(forms.snippets(name)), None)
    text, outputs, inputs = SEQUENCES[name]
    made, read = (
        tuple(Port(f"{letter}{k}", TYPES[t], TYPES[t].width) for k, t in enumerate(types))
        for letter, types in (("d", outputs), ("a", inputs))
    )
    return FormSnippet(name, "", text, made, read, forms.bounds_of()["add.u32"])


@dataclass
class Lesson:
    """What is known of one form of the table: contexts in which it agreed and differed.

    confirmed: contexts in which a device, with the same machine code, gave the words of the interpreter. refuted: those
    in which it gave others.
    """

    agreed: set[str] = field(default_factory=set)
    differed: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)
    refuted: set[str] = field(default_factory=set)


@dataclass
class MoveLessons:
    """What kernels showed of instructions without a row: by form and digest, the contexts that agreed and differed."""

    agreed: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    differed: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def note(self, ran: Ran, context: str, *, agreed: bool) -> None:
        """Count a kernel whose bits were those of its PTX, or others."""
        for form, step in ran.moves.items():
            (self.agreed if agreed else self.differed).setdefault((form, move_digest(step)), set()).add(context)

    def lines(self, target: str) -> list[str]:
        """The lines of the ledger `taught.MOVES` for a target."""
        return [
            json.dumps({"target": target, "form": form, "agreed": len(self.agreed.get((form, digest), ())),
                        "differed": len(self.differed.get((form, digest), ())), "digest": digest})
            for form, digest in sorted({*self.agreed, *self.differed})
        ]  # fmt: skip


@dataclass(frozen=True)
class FormTask:
    """A kernel to assemble: a snippet, how its operands are given, and its inputs and expected outputs."""

    name: str
    snippet: FormSnippet
    given: str
    columns: Columns
    expected: Columns


def _lesson(name: str) -> FormSnippet | None:
    """The snippet of a form or a sequence; None for one that teaches nothing."""
    snippet = _snippet(name)
    if snippet is None or not snippet.inputs or name in OPEN or name in FAULTY:
        return None
    return snippet


def tasks(names: Iterable[str], given: str, target: str) -> Iterator[FormTask]:
    """A task for each form that the target has."""
    for number, name in enumerate(names):
        snippet = _lesson(name)
        if snippet is None:
            continue
        if name not in SEQUENCES and forms.lacking(name, target):
            continue
        if ALIKE.fullmatch(name) and capability(target) < 90:
            continue
        if given == "parameters" and not (UNIFORM.fullmatch(name) and set(_bits(snippet)) <= {16, 32, 64}):
            continue
        if given == "immediate" and (len(snippet.inputs) < 2 or snippet.inputs[-1].type.width == 1):
            continue
        if given == "immediate" and snippet.bound.form.approximate:
            continue  # ptxas may compute a part of it with other roundings
        columns = _columns(snippet, given)
        expected = run_emulated(snippet, columns, target)
        if not isinstance(expected, str):
            yield FormTask(f"form_{number}", snippet, given, columns, expected)


def _bits(snippet: FormSnippet) -> list[int]:
    return [port.bits for port in (*snippet.outputs, *snippet.inputs)]


def _columns(snippet: FormSnippet, given: str) -> Columns:
    inputs = Inputs(snippet)
    edges, drawn = inputs.edges(EDGES), inputs.drawn(0, DRAWN)
    count = EDGES + DRAWN
    columns = [np.resize(np.concatenate([d, e[:EDGES]]), count) for e, d in zip(edges, drawn, strict=True)]
    if given == "parameters":
        columns = [c[:: count // LAUNCHES][:LAUNCHES] for c in columns]
    if given == "immediate":
        columns[-1] = np.full(count, columns[-1][snippet.seed % DRAWN], columns[-1].dtype)
    return columns


def module(some: Sequence[FormTask], version: str, target: str) -> str:
    """The PTX of tasks."""
    return "\n".join([f".version {version}", f".target {target}", ".address_size 64", *map(_kernel, some)])


def _kernel(task: FormTask) -> str:
    snippet = task.snippet
    ports = [*((f"out{k}", p) for k, p in enumerate(snippet.outputs)),
             *((f"in{k}", p) for k, p in enumerate(snippet.inputs))]  # fmt: skip
    values = task.given == "parameters"
    parameters = ", ".join(
        f".param .b{port.bits if values and name.startswith('in') else 64} {name}" for name, port in ports
    )
    lines = [f".visible .entry {task.name}({parameters}) {{", ".reg .b32 %thread, %block, %index;", ".reg .b64 %p, %o;"]
    lines += [f".reg .b{port.bits} %v{k};" for k, (_, port) in enumerate(ports)]
    lines += ["mov.u32 %thread, %tid.x;", "mov.u32 %block, %ctaid.x;"]
    lines.append(f"mad.lo.u32 %index, %block, {BLOCK}, %thread;")
    first = len(snippet.outputs)
    for k, (name, port) in enumerate(ports):
        if k < first:
            continue
        if task.given == "immediate" and k == len(ports) - 1:
            lines.append(f"mov.b{port.bits} %v{k}, {int(task.columns[-1][0]):#x};")
        elif values:
            lines.append(f"ld.param.b{port.bits} %v{k}, [{name}];")
        else:
            lines += [*_address(name, port.bits), f"ld.global.b{port.bits} %v{k}, [%p];"]
    lines.append(re.sub(r"\$(\d+)", r"%v\1", snippet.text))
    for k, (name, port) in enumerate(ports[:first]):
        lines += [*_address(name, port.bits), f"st.global.b{port.bits} [%p], %v{k};"]
    return "\n".join([*lines, "ret;", "}"])


def _address(name: str, bits: int) -> list[str]:
    return [f"ld.param.u64 %p, [{name}];", "cvta.to.global.u64 %p, %p;", f"mul.wide.u32 %o, %index, {bits // 8};",
            "add.u64 %p, %p, %o;"]  # fmt: skip


def assembled(
    some: Sequence[FormTask], ptxas: str, level: int, version: str, target: str
) -> tuple[list[FormTask], bytes]:
    """The tasks that ptxas accepts, and their cubin; a module that it refuses is halved."""
    with tempfile.TemporaryDirectory(prefix="ptxdiff-") as folder:
        source, cubin = Path(folder, "forms.ptx"), Path(folder, "forms.cubin")
        source.write_text(module(some, version, target))
        command = [ptxas, f"-O{level}", "--fmad=false", f"--gpu-name={target}", str(source), "-o", str(cubin)]
        status, output = run_tool(command, _SECONDS)
        if not status and cubin.exists():
            return list(some), cubin.read_bytes()
    blamed = {int(n) for n in re.findall(r"line (\d+); error", output)}
    lines = module(some, version, target).splitlines()
    starts = [k + 1 for k, line in enumerate(lines) if line.startswith(".visible")]
    bad = {max(k for k, s in enumerate(starts) if s <= n) for n in blamed if n >= starts[0]}
    kept = [t for k, t in enumerate(some) if k not in bad]
    return assembled(kept, ptxas, level, version, target) if bad and kept else ([], b"")


def teach(
    names: Sequence[str],
    target: str,
    ptxas: str,
    nvdisasm: str,
    version: str,
    lessons: dict[str, Lesson],
    device: CudaContext | None = None,
    moves: MoveLessons | None = None,
) -> dict[str, str]:
    """Run forms on a target at all levels; adds to the lessons. Returns the contexts that did not agree, with words.

    device: a GPU of the target, which runs the same machine code. moves: gets the lessons on instructions without rows.
    """
    complaints: dict[str, str] = {}
    modules = _modules(names, target, ptxas, version)
    while several := list(islice(modules, TOGETHER)):
        read = _codes([cubin for *_, cubin in several], target, nvdisasm)
        for (given, level, some, cubin), codes in zip(several, read, strict=True):
            loaded = None if device is None else (device, device.load(cubin))
            for task in some:
                context = f"{task.snippet.form} {given} -O{level}"
                complaint = _try(task, codes[task.name], context, lessons, loaded, moves)
                if complaint:
                    complaints[context] = complaint
    return complaints


def _modules(
    names: Sequence[str], target: str, ptxas: str, version: str
) -> Iterator[tuple[str, int, list[FormTask], bytes]]:
    """How the operands are given, ptxas's level, the tasks of a module that it accepts, and their cubin."""
    for given in GIVEN:
        every = list(tasks(names, given, target))
        for level in LEVELS:
            for start in range(0, len(every), GROUP):
                some, cubin = assembled(every[start : start + GROUP], ptxas, level, version, target)
                if some:
                    yield given, level, some, cubin


_decoder = lru_cache(maxsize=2)(WordDecoder)


def _codes(cubins: Sequence[bytes], target: str, nvdisasm: str) -> Iterator[Mapping[str, MachineCode]]:
    """The kernels of each cubin by name, read with as few starts of nvdisasm as there can be. Raises Unsupported."""
    for found in _decoder(target, nvdisasm).codes(cubins):
        if isinstance(found, Unsupported):
            raise found
        yield found


@dataclass(frozen=True)
class TaskLaunch:
    """A launch of a task's kernel. values: of its parameters, the outputs first; all threads of a block write."""

    values: list[Buffer | bytes]
    blocks: int
    threads: int


def launches(task: FormTask) -> Iterator[tuple[slice, TaskLaunch]]:
    """The launches that run a task's inputs: all in one, or, as parameters, one each. Also which inputs they are.

    A launch with parameters writes its result in every thread of a warp.
    """
    if task.given != "parameters":
        values: list[Buffer | bytes] = [
            Buffer(np.zeros_like(e), f"output {k}", defined=False) for k, e in enumerate(task.expected)
        ]
        values += [Buffer(np.array(c), f"input {k}") for k, c in enumerate(task.columns)]
        yield slice(None), TaskLaunch(values, len(task.columns[0]) // BLOCK, BLOCK)
        return
    for row in range(len(task.columns[0])):
        values = [Buffer(np.zeros(WARP, e.dtype), f"output {k}", defined=False) for k, e in enumerate(task.expected)]
        values += [np.ascontiguousarray(c[row : row + 1]).tobytes() for c in task.columns]
        yield slice(row, row + 1), TaskLaunch(values, 1, WARP)


def _try(
    task: FormTask, code: MachineCode, context: str, lessons: dict[str, Lesson],
    loaded: tuple[CudaContext, Any] | None = None, moves: MoveLessons | None = None,
) -> str:  # fmt: skip
    outputs: Columns = [np.zeros_like(e) for e in task.expected]
    ran: Ran | None = None
    try:
        for some, launch in launches(task):
            ran = run_machine_code(code, launch.values, (launch.blocks,), launch.threads)
            for output, buffer in zip(outputs, launch.values, strict=False):
                assert isinstance(buffer, Buffer)
                output[some] = buffer.array[: len(output[some])]
    except Unsupported as refusal:
        return f"unsupported: {refusal.message}"
    except PtxError as error:
        return f"error: {error}"
    assert ran is not None
    wrong = np.zeros(len(outputs[0]), np.bool_)
    for got, expected in zip(outputs, task.expected, strict=True):
        wrong |= got != expected
    if moves is not None:
        moves.note(ran, context, agreed=not wrong.any())
    on_device = None if loaded is None or task.given == "parameters" else _on_device(task, *loaded)
    same = on_device is not None and all((a == b).all() for a, b in zip(outputs, on_device, strict=True))
    for form in _teaching(code, ran.forms):
        lesson = lessons.setdefault(form, Lesson())
        (lesson.differed if wrong.any() else lesson.agreed).add(context)
        if on_device is not None:
            (lesson.confirmed if same else lesson.refuted).add(context)
    if on_device is not None and not same:
        return "the device gives other words than the interpreter"
    if not wrong.any():
        return ""
    at = int(wrong.argmax())
    shown = [", ".join(f"0x{int(c[at]):x}" for c in side) for side in (task.columns, task.expected, outputs)]
    return f"{int(wrong.sum())} of {len(wrong)} differ: ({shown[0]}) gives {shown[2]}, not {shown[1]}"


def _teaching(code: MachineCode, ran: Iterable[str]) -> list[str]:
    """Of the forms that ran, those that occur outside of a `prologue`."""
    aside = prologue(code)
    if not aside:
        return list(ran)
    own = {s.form for at, s in prepared(code).items() if at not in aside and isinstance(s, Computed)}
    return [form for form in ran if form in own]


def _on_device(task: FormTask, device: CudaContext, module: Any) -> Columns:
    """The outputs of a task's kernel on a device. module: the loaded cubin."""
    outputs = [np.zeros_like(e) for e in task.expected]
    arrays = [*outputs, *map(np.ascontiguousarray, task.columns)]
    pointers = [device.allocate(a.nbytes) for a in arrays]
    for pointer, array in zip(pointers, arrays, strict=True):
        device.upload(pointer, array)
    device.start(device.kernel(module, task.name), pointers, len(task.columns[0]) // BLOCK, BLOCK)
    for pointer, array in zip(pointers, outputs, strict=False):
        device.download(array, pointer)
    for pointer in pointers:
        device.free(pointer)
    return outputs


def lines(lessons: dict[str, Lesson], target: str, of: str) -> list[str]:
    """The lines of the ledger for a target's lessons. of: "forms" or "sequences", whichever taught them."""
    made: list[dict[str, Any]] = []
    for form, lesson in sorted(lessons.items()):
        entry: dict[str, Any] = {"target": target, "form": form, "agreed": len(lesson.agreed),
                                 "differed": len(lesson.differed), "digest": digest(form)}  # fmt: skip
        if of != "forms":
            entry["of"] = of
        if lesson.confirmed:
            entry["confirmed"] = len(lesson.confirmed)
        if lesson.refuted:
            entry["refuted"] = len(lesson.refuted)
            entry["example"] = min(lesson.refuted)
        if lesson.differed:
            entry["example"] = min(lesson.differed)
        made.append(entry)
    return [json.dumps(entry) for entry in made]


def few(names: Sequence[str], target: str, contexts: int) -> list[str]:
    """So many of some forms that each form of the table is in the machine code of `contexts` of them, if in so many.

    ptxas assembles all of them once, at level 3 with operands in registers; none runs.
    """
    tools = assembler(target).path, str(tool("nvdisasm"))
    every = []
    for number, name in enumerate(names):
        snippet = _lesson(name)
        if snippet is None or forms.lacking(name, target):
            continue
        every.append(FormTask(f"form_{number}", snippet, "registers", [], []))
    left: Counter[str] = Counter()
    chosen = []
    for start in range(0, len(every), GROUP):
        some, cubin = assembled(every[start : start + GROUP], tools[0], LEVELS[-1], probe()[target].ptx_version, target)
        codes = next(_codes([cubin], target, tools[1])) if some else {}
        for task in some:
            steps = prepared(codes[task.name]).values()
            found = set(_teaching(codes[task.name], (s.form for s in steps if isinstance(s, Computed))))
            if not any(isinstance(s, RefusedStep) for s in steps) and any(left[f] < contexts for f in found):
                left.update(found)
                chosen.append(task.snippet.form)
    return chosen


def taught_again(
    of: str, target: str, before: str, say: Callable[[str], None], device: CudaContext | None = None,
    names: Sequence[str] | None = None,
) -> str:  # fmt: skip
    """The ledger's text with new lines for what forms or sequences teach on a target. Raises NoAssembler and NoTriton.

    of: "forms" or "sequences". before: the ledger's text. say: gets each context that did not agree, in words. device:
    as for `teach`. names: only these forms or sequences. Lines that hold stay then, unless a context differs or more
    contexts than before agree.
    """
    every = tuple(SEQUENCES) if of == "sequences" else tuple(forms.bounds_of())
    lessons: dict[str, Lesson] = {}
    version = probe()[target].ptx_version
    tools = assembler(target).path, str(tool("nvdisasm"))
    complaints = teach(every if names is None else names, target, *tools, version, lessons, device)
    for context, complaint in complaints.items():
        say(f"{target} {context}: {complaint}")
    kept, made = [], []
    confirmed: dict[tuple[str, str], int] = {}
    for line in before.splitlines():
        entry = json.loads(line)
        if (entry["target"], entry.get("of", "forms")) != (target, of):
            kept.append(line)
            continue
        lesson = lessons.get(entry["form"], Lesson())
        holds = entry["digest"] == digest(entry["form"]) and entry["agreed"] >= len(lesson.agreed)
        if names is not None and holds and not (lesson.differed or lesson.refuted):
            kept.append(line)
            lessons.pop(entry["form"], None)
        elif entry.get("confirmed"):
            confirmed[entry["form"], entry["digest"]] = entry["confirmed"]
    for entry in map(json.loads, lines(lessons, target, of)):
        earlier = confirmed.get((entry["form"], entry["digest"]))  # what a device said of this definition stays
        made.append(json.dumps(entry if device is not None or not earlier else {**entry, "confirmed": earlier}))
    return "".join(f"{line}\n" for line in [*kept, *made])
