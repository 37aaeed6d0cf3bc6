"""From PTX to machine code: calls ptxas, reads the resources that it reports, and disassembles.

Triton calls ptxas too, but when ptxas fails, Triton prints the whole PTX and hides the reason.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import tempfile
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ptxdiff.diskcache import DiskCache
from ptxdiff.model.identity.definition import harness
from ptxdiff.triton.cubin import MOST, MachineKernel, kernel_of, merged, split_text
from ptxdiff.triton.diagnostics import Complaint, Ended, Refusal, kind_of, main_line, ptxas_complaints, with_hint
from ptxdiff.triton.ptx_text import asm_line, blamed_line
from ptxdiff.triton.spec import Compilation, Memo
from ptxdiff.triton.tools import run_tool
from ptxdiff.triton.unread import named

PTXAS_TIMEOUT = 120.0


@dataclass(frozen=True)
class Assembly:
    """The machine code of a kernel.

    resources: "registers", "spill_stores", "spill_loads", "stack", "shared", "barriers"; in bytes, except for registers
    and barriers, which are counts. warnings: ptxas's, one line each. stated: the PTX ISA version that was written into
    the text for an older assembler; "" if the text is unchanged.
    """

    cubin: bytes = field(repr=False)
    resources: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    stated: str = ""


@dataclass(frozen=True)
class Disassembly:
    """SASS as nvdisasm prints it, with each instruction's line of PTX, and the count of each opcode ("MUFU.RCP")."""

    text: str
    opcodes: Mapping[str, int]


Assembled = Assembly | Refusal
_memo: Memo[Assembled] = Memo(1024)


def assemble(compilation: Compilation) -> Assembled:
    """Assemble a compiled kernel for its own target, as Triton would. Each kernel is assembled once in a process."""
    key = (compilation.ptx_hash, compilation.spec.target, compilation.ptxas, *options_of(compilation))
    result, first = _memo.claim(key)
    if first:
        try:
            result.set_result(_found(compilation) or _kept_too(compilation, _assemble(compilation)))
        except BaseException as error:
            result.set_exception(error)
            raise
    return result.result()


_assembled = DiskCache("cubin", 40_000, 1 << 30)


def _identity(compilation: Compilation) -> tuple[bytes, ...]:
    """What decides the machine code and ptxas's messages: text, options, the assembler's file, this harness."""
    spec, tool = compilation.spec, compilation.ptxas
    status = os.stat(tool.path)
    file = f"{status.st_ino if tool.chosen else 0} {status.st_size} {status.st_mtime_ns}"
    parts = f"{tool} {file} {spec.target} {options_of(compilation)} {harness()}"
    return compilation.ptx.encode(), parts.encode()


def _found(compilation: Compilation) -> Assembly | None:
    """The machine code from an earlier run; None if there is none. Refusals are not stored, nor results of scripts."""
    chosen = compilation.ptxas.chosen
    if chosen and chosen.script:
        return None
    try:
        stored = _assembled.get(*_identity(compilation))
        if stored is None:
            return None
        entry = json.loads(zlib.decompress(stored))
        cubin = base64.b64decode(entry["cubin"])
        return Assembly(cubin, dict(entry["resources"]), tuple(entry["warnings"]), entry["stated"])
    except (OSError, ValueError, KeyError, TypeError, zlib.error):
        return None


def _kept_too(compilation: Compilation, made: Assembled) -> Assembled:
    chosen = compilation.ptxas.chosen
    if isinstance(made, Assembly) and not (chosen and chosen.script):  # a script may call another program later
        entry = {**dataclasses.asdict(made), "cubin": base64.b64encode(made.cubin).decode()}
        _assembled.put(zlib.compress(json.dumps(entry).encode(), 1), *_identity(compilation))
    return made


def _assemble(compilation: Compilation) -> Assembled:
    """Call ptxas. If a chosen assembler is older than the PTX, try again with the version that it knows."""
    made = _asked(compilation, compilation.ptx)
    chosen = compilation.ptxas.chosen
    if chosen is None or not isinstance(made, Refusal) or made.ended:
        return made
    older = _OLDER.search(made.detail)
    if older is not None:
        lowered, count = _VERSION.subn(rf"\g<1>{older[1]}", compilation.ptx, count=1)
        again = _asked(compilation, lowered) if count else made
        if isinstance(again, Assembly):
            return replace(again, stated=older[1])
        if again.ended:
            return again
        return Refusal("not run", f"{chosen.name} is too old for this PTX: {again.words}", again.detail, "ptxas")
    if _NO_SUCH_TARGET.search(made.detail):
        return Refusal("not run", f"{chosen.name} does not know {compilation.spec.target}", made.detail, "ptxas")
    return replace(made, words=f"{chosen.name}: {made.words}")


_OLDER = re.compile(r"Unsupported \.version [\d.]+; current version is '([\d.]+)'")
_VERSION = re.compile(r"^(\s*\.version\s+)[\d.]+", re.M)
_NO_SUCH_TARGET = re.compile(r"is not defined for option 'gpu-name'")


def _asked(compilation: Compilation, ptx: str) -> Assembled:
    """Assemble a text. A crash is reported only if a second call crashes too."""
    made = _asked_once(compilation, ptx)
    if isinstance(made, Refusal) and made.ended == "crashed":
        again = _asked_once(compilation, ptx)
        if isinstance(again, Assembly) or again.ended != "crashed":
            return Refusal("error", f"{made.words}, but not when it was called again", made.detail, "ptxas", "died")
    return made


def _asked_once(compilation: Compilation, ptx: str) -> Assembled:
    tool = compilation.ptxas
    with tempfile.TemporaryDirectory(prefix="ptxdiff-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [tool.path, *options_of(compilation)]
        try:
            status, output = run_tool([*command, str(source), "-o", str(cubin)], PTXAS_TIMEOUT)
        except subprocess.TimeoutExpired:
            message = f"{tool.name} did not finish in {PTXAS_TIMEOUT:g} s"
            return Refusal("error", message, stage="ptxas", ended="hung")
        if status or not cubin.exists():
            return _refusal(compilation, status, output)
        warnings = tuple(dict.fromkeys(c.words for c in ptxas_complaints(output, ("warning",))))
        return Assembly(cubin.read_bytes(), resources(output), warnings)


def options_of(compilation: Compilation) -> list[str]:
    """ptxas's options without files: those that Triton uses, or those of a chosen assembler at its level."""
    spec, tool = compilation.spec, compilation.ptxas
    if compilation.called and tool.chosen is None:
        return [*compilation.called, *([] if "-v" in compilation.called else ["-v"])]
    # ptxas contracts by default, so a kernel compiled without contraction needs the option against it.
    contraction = [] if spec.enable_fp_fusion else ["--fmad=false"]
    level = [f"-O{tool.chosen.level}"] if tool.chosen else []
    return ["-lineinfo", *level, *contraction, *tool.options, "-v", f"--gpu-name={spec.target}"]


def _refusal(compilation: Compilation, status: int, output: str) -> Refusal:
    complaints = ptxas_complaints(output)
    crashed = _crashed(status, output)
    if crashed or not complaints:
        message = f"{compilation.ptxas.name} {crashed or _how(status)}"
        ended: Ended = "crashed" if crashed else "died"
        return Refusal("error", f"{message}: {main_line(output)}" if output else message, output, "ptxas", ended)
    # The target is to blame only if every complaint is about it. A mismatch of arguments is named last: it often
    # follows from another complaint about the same operand.
    worst = min(complaints, key=lambda c: (kind_of(c.words), c.words.startswith("Arguments mismatch")))
    return Refusal(kind_of(worst.words), with_hint(worst.words + _place(compilation.ptx, worst)), output, "ptxas")


def _how(status: int) -> str:
    return f"ended by signal {-status}" if status < 0 else f"failed with status {status}"


_ITS_OWN = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS, signal.SIGTRAP}
"""Signals of a fault in the program itself. Others come from outside: the system kills when memory runs out."""
_INTERNAL = re.compile(r"internal (?:compiler )?error|Internal Compiler Error|assertion .*failed", re.I)


def _crashed(status: int, output: str) -> str:
    """How ptxas crashed, in words; "" if the exit is not a fault of its own."""
    number = -status if status < 0 else status - 128 if 128 < status < 160 else 0  # a shell adds 128
    if number in _ITS_OWN:
        return f"ended by signal {number} ({signal.Signals(number).name})"
    return "crashed" if status and _INTERNAL.search(output) else ""


def _place(ptx: str, complaint: Complaint) -> str:
    if complaint.line is None:
        return ""
    number = blamed_line(ptx, complaint.line) if "Parsing error" in complaint.words else complaint.line
    asm = asm_line(ptx, number)
    if asm is None:
        lines = ptx.splitlines()
        return f", PTX line {number}" + (f" `{lines[number - 1].strip()}`" if number <= len(lines) else "")
    if asm.ours:
        return f", asm line {asm.number} `{asm.text}`"
    of = f"the inline asm that {asm.call} calls" if asm.call else "inline asm of a function that is called"
    return f", line {asm.number} of {of}: `{asm.text}`"


_RESOURCES = {
    "registers": r"Used (\d+) registers",
    "barriers": r"used (\d+) barriers",
    "shared": r"(\d+) bytes smem",
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
}


def resources(output: str) -> dict[str, int]:
    """Resources by name, from the output of `ptxas -v`. A resource that it does not mention is zero."""
    matches = {name: re.search(pattern, output) for name, pattern in _RESOURCES.items()}
    return {name: int(m[1]) if m else 0 for name, m in matches.items()}


def disassemble(assembly: Assembly, nvdisasm: str) -> Disassembly | Refusal:
    """Disassemble with the nvdisasm at a path. See `listing`."""
    text = listing(assembly.cubin, nvdisasm)
    if isinstance(text, Refusal):
        return text
    text = _WORDS.sub("", text)
    return Disassembly(text, opcodes(text))


_WORDS = re.compile(r"^\s*/\* 0x[0-9a-f]{16} \*/\n|[ \t]*/\* 0x[0-9a-f]{16} \*/$", re.M)
_LINES = re.compile(r"^\t//## .*\n", re.M)


def with_words(text: str) -> str:
    """A listing without PTX lines: each instruction with the words of its encoding."""
    return _LINES.sub("", text)


def listing(cubin: bytes, nvdisasm: str) -> str | Refusal:
    """nvdisasm's text of a cubin's code, each instruction with its line of PTX and the words of its encoding.

    A call takes a quarter of a second; the text is stored between runs. Readers take what they need of it.
    """
    key = cubin, _reader(nvdisasm)
    text = _ahead.pop(key, None)
    if text is None and (kept := _kept.get(*key)) is not None:
        text = kept.decode()
    if text is None:
        made = _disassemble(cubin, nvdisasm)
        if isinstance(made, Refusal):
            return made
        text = made
        _kept.put(text.encode(), *key)
    return text


def disassemble_ahead(cubins: Iterable[bytes], nvdisasm: str) -> None:
    """Disassemble cubins for later calls of `listing`, with one call of nvdisasm for all that fit in one file.

    Those that do not fit, and those whose text does not have the expected form, are left to `listing`.
    """
    reader = _reader(nvdisasm)
    groups: dict[object, list[tuple[bytes, MachineKernel]]] = {}
    for cubin in dict.fromkeys(cubins):
        if (cubin, reader) not in _ahead and _kept.get(cubin, reader) is None and (kernel := kernel_of(cubin)):
            groups.setdefault(kernel.alike, []).append((cubin, kernel))
    for group in groups.values():
        for first in range(0, len(group), MOST):
            part = group[first : first + MOST]
            output = _disassemble(merged([k for _, k in part]), nvdisasm) if len(part) > 1 else None
            texts = split_text([k for _, k in part], output) if isinstance(output, str) else None
            for (cubin, _), text in zip(part, texts or (), strict=texts is not None):
                _kept.put(text.encode(), cubin, reader)
                _ahead[cubin, reader] = text
    while len(_ahead) > MOST:
        _ahead.popitem(last=False)


def _reader(nvdisasm: str) -> bytes:
    """What decides the text of machine code: the file of nvdisasm, and its options."""
    status = os.stat(nvdisasm)
    return f"{nvdisasm} {status.st_size} {status.st_mtime_ns} {DISASSEMBLE}".encode()


# Code sections only, each instruction with its line of PTX and the words of its encoding. No data flow analysis, which
# adds a third.
DISASSEMBLE = ("-c", "-ndf", "-gp", "-hex")
_kept = DiskCache("sass")
_ahead: OrderedDict[tuple[bytes, bytes], str] = OrderedDict()  # by cubin and reader, until `listing` takes them


def forget() -> None:
    """Forget what this process has assembled and disassembled; what is kept in files stays."""
    _memo.clear()
    _ahead.clear()


def making_ahead(path: str) -> contextlib.AbstractContextManager[None]:
    """A lock: one process at a time disassembles a case file's kernels ahead; the others then find its results."""
    return _kept.making(b"ahead", path.encode())


def _disassemble(cubin: bytes, nvdisasm: str) -> str | Refusal:
    text = read_by(nvdisasm, DISASSEMBLE, cubin)
    return text if isinstance(text, Refusal) else _BEFORE_WORDS.sub(" ", text)


def read_by(nvdisasm: str, options: Sequence[str], cubin: bytes) -> str | Refusal:
    """What nvdisasm prints of a cubin with these options; the text is not stored."""
    with tempfile.NamedTemporaryFile(prefix="ptxdiff-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [nvdisasm, *options, file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PTXAS_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Refusal("error", f"nvdisasm: {error}", stage="nvdisasm")
    if done.returncode:
        words = named(nvdisasm, done.stderr) or f"nvdisasm: {main_line(done.stderr or done.stdout)}"
        return Refusal("error", words, done.stderr, "nvdisasm")
    return done.stdout


_BEFORE_WORDS = re.compile(r"[ \t]+(?=/\* 0x[0-9a-f]{16} \*/$)", re.M)
"""The column of encodings lies behind the longest instruction of the file: of other kernels, where it holds several."""


_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)", re.M)


def opcodes(sass: str) -> dict[str, int]:
    """How often each opcode, with its modifiers, occurs in SASS, without the padding after the last EXIT."""
    counted = Counter(m["opcode"] for m in _INSTRUCTION.finditer(sass))
    counted.pop("NOP", None)
    return dict(sorted(counted.items()))


# ---- Any ptxas on a PTX text, without a kernel of Triton's around it -------------------------------------------------


class NotAssembled(ValueError):
    """ptxas refused a text, or did not run. The message has its words."""


_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.M)


def cubin_of(text: str, ptxas: str, level: int | None = None, *, contracts: bool = True) -> bytes:
    """The cubin of a PTX module, for the target that it names. level: None for ptxas's own. Raises NotAssembled.

    For a ptxas that is older than the text's .version, it is lowered to the one that this ptxas knows.
    """
    target = _TARGET.search(text)
    if target is None:
        raise NotAssembled("the text names no .target")
    options = [] if level is None else [f"-O{level}"]
    options += [] if contracts else ["--fmad=false"]
    with tempfile.TemporaryDirectory(prefix="ptxdiff-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        command = [ptxas, *options, f"--gpu-name={target[1]}", str(source), "-o", str(cubin)]
        try:
            status, output = run_tool(command, PTXAS_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotAssembled(f"ptxas: {error}") from None
        older = _OLDER.search(output) if status else None
        if older is not None and f".version {older[1]}" not in text:
            lowered = _VERSION.sub(rf"\g<1>{older[1]}", text, count=1)
            return cubin_of(lowered, ptxas, level, contracts=contracts)
        if status or not cubin.exists():
            raise NotAssembled(f"ptxas: {main_line(output)}")
        return cubin.read_bytes()
