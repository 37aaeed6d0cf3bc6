"""From PTX to machine code: calls ptxas, reads the resources that it reports, and disassembles.

Triton calls ptxas too, but where that fails it prints the whole PTX and hides the reason.
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

from harness.diskcache import DiskCache
from harness.model.identity.experiment import harness
from harness.triton.cubins import MOST, MachineKernel, kernel_of, merged, parted
from harness.triton.diagnostics import Complaint, Ended, Refusal, kind_of, main_line, ptxas_complaints, with_hint
from harness.triton.ptxtext import asm_line, blamed_line
from harness.triton.spec import Compilation, Memo

PTXAS_TIMEOUT = 120.0


@dataclass(frozen=True)
class Assembly:
    """What ptxas made of a kernel.

    resources: "registers", "spill_stores", "spill_loads", "stack", "shared", "barriers"; bytes but for registers and
    barriers. warnings: ptxas's, one line each. stated: the version of the PTX ISA that the text was made to state for
    an older assembler; "" where it was left as it is.
    """

    cubin: bytes = field(repr=False)
    resources: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    stated: str = ""


@dataclass(frozen=True)
class Disassembly:
    """SASS as nvdisasm prints it, with the PTX line behind each instruction, and each opcode's count ("MUFU.RCP")."""

    text: str
    opcodes: Mapping[str, int]


Assembled = Assembly | Refusal
_memo: Memo[Assembled] = Memo(1024)


def assemble(compilation: Compilation) -> Assembled:
    """Assemble a compiled kernel for its own target, as Triton would; each kernel once a process."""
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
    """What decides the machine code and what ptxas says: text, options, the assembler's file, this harness."""
    spec, tool = compilation.spec, compilation.ptxas
    status = os.stat(tool.path)
    file = f"{status.st_ino if tool.chosen else 0} {status.st_size} {status.st_mtime_ns}"
    told = f"{tool} {file} {spec.target} {options_of(compilation)} {harness()}"
    return compilation.ptx.encode(), told.encode()


def _found(compilation: Compilation) -> Assembly | None:
    """What an earlier run assembled. Refusals are not kept, nor what a script gave."""
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
    if isinstance(made, Assembly) and not (chosen and chosen.script):  # a script's program may change, its text stay
        entry = {**dataclasses.asdict(made), "cubin": base64.b64encode(made.cubin).decode()}
        _assembled.put(zlib.compress(json.dumps(entry).encode(), 1), *_identity(compilation))
    return made


def _assemble(compilation: Compilation) -> Assembled:
    """Ask ptxas; an assembler that was chosen and is older than the PTX, with the version that it knows."""
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
        return Refusal("not run", f"{chosen.name} is older than this PTX: {again.words}", again.detail, "ptxas")
    if _NO_SUCH_TARGET.search(made.detail):
        return Refusal("not run", f"{chosen.name} does not know {compilation.spec.target}", made.detail, "ptxas")
    return replace(made, words=f"{chosen.name}: {made.words}")


_OLDER = re.compile(r"Unsupported \.version [\d.]+; current version is '([\d.]+)'")
_VERSION = re.compile(r"^(\s*\.version\s+)[\d.]+", re.M)
_NO_SUCH_TARGET = re.compile(r"is not defined for option 'gpu-name'")


def _asked(compilation: Compilation, ptx: str) -> Assembled:
    """What ptxas makes of a text. A crash counts where a second call crashes too."""
    made = _asked_once(compilation, ptx)
    if isinstance(made, Refusal) and made.ended == "crashed":
        again = _asked_once(compilation, ptx)
        if isinstance(again, Assembly) or again.ended != "crashed":
            return Refusal("error", f"{made.words}; asked again it did not", made.detail, "ptxas", "died")
    return made


def _asked_once(compilation: Compilation, ptx: str) -> Assembled:
    tool = compilation.ptxas
    with tempfile.TemporaryDirectory(prefix="ptxdiff-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [tool.path, *options_of(compilation)]
        try:
            status, said = run_tool([*command, str(source), "-o", str(cubin)], PTXAS_TIMEOUT)
        except subprocess.TimeoutExpired:
            words = f"{tool.name} did not finish in {PTXAS_TIMEOUT:g} s"
            return Refusal("error", words, stage="ptxas", ended="hung")
        if status or not cubin.exists():
            return _refusal(compilation, status, said)
        warnings = tuple(dict.fromkeys(c.words for c in ptxas_complaints(said, ("warning",))))
        return Assembly(cubin.read_bytes(), resources(said), warnings)


def options_of(compilation: Compilation) -> list[str]:
    """What ptxas is called with, but for the files: as Triton calls it, or a chosen one at its level."""
    spec, tool = compilation.spec, compilation.ptxas
    if compilation.called and tool.chosen is None:
        return [*compilation.called, *([] if "-v" in compilation.called else ["-v"])]
    # A kernel compiled without contraction must not have it put back by ptxas, whose own default is to contract.
    contraction = [] if spec.enable_fp_fusion else ["--fmad=false"]
    level = [f"-O{tool.chosen.level}"] if tool.chosen else []
    return ["-lineinfo", *level, *contraction, *tool.options, "-v", f"--gpu-name={spec.target}"]


def run_tool(command: Sequence[str], timeout: float) -> tuple[int, str]:
    """A program's exit status, and what it said. Raises TimeoutExpired, and then nothing that it started is left."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            said, _ = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said.strip()


def _refusal(compilation: Compilation, status: int, said: str) -> Refusal:
    complaints = ptxas_complaints(said)
    crashed = _crashed(status, said)
    if crashed or not complaints:
        words = f"{compilation.ptxas.name} {crashed or _how(status)}"
        ended: Ended = "crashed" if crashed else "died"
        return Refusal("error", f"{words}: {main_line(said)}" if said else words, said, "ptxas", ended)
    # Only where every complaint is about the target is the code itself in order; and a mismatch of arguments is often
    # said of an operand that another complaint names.
    worst = min(complaints, key=lambda c: (kind_of(c.words), c.words.startswith("Arguments mismatch")))
    return Refusal(kind_of(worst.words), with_hint(worst.words + _place(compilation.ptx, worst)), said, "ptxas")


def _how(status: int) -> str:
    return f"ended by signal {-status}" if status < 0 else f"failed with status {status}"


_ITS_OWN = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS, signal.SIGTRAP}
"""Signals of a fault in the program itself. Others come from outside: the system kills when memory runs out."""
_INTERNAL = re.compile(r"internal (?:compiler )?error|Internal Compiler Error|assertion .*failed", re.I)


def _crashed(status: int, said: str) -> str:
    """How ptxas ended, in words, where that is a fault of its own; "" where it is none."""
    number = -status if status < 0 else status - 128 if 128 < status < 160 else 0  # a shell says 128 more
    if number in _ITS_OWN:
        return f"ended by signal {number} ({signal.Signals(number).name})"
    return "crashed" if status and _INTERNAL.search(said) else ""


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


def resources(said: str) -> dict[str, int]:
    """Resources by name from what `ptxas -v` prints; what it does not mention is zero."""
    found = {name: re.search(pattern, said) for name, pattern in _RESOURCES.items()}
    return {name: int(m[1]) if m else 0 for name, m in found.items()}


def disassemble(assembly: Assembly, nvdisasm: str) -> Disassembly | Refusal:
    """Disassemble with the nvdisasm at a path: a quarter of a second, once, as the text is kept between runs."""
    key = assembly.cubin, _reader(nvdisasm)
    text = _ahead.pop(key, None)
    if text is None and (kept := _kept.get(*key)) is not None:
        text = kept.decode()
    if text is None:
        made = _disassemble(assembly.cubin, nvdisasm)
        if isinstance(made, Refusal):
            return made
        text = made
        _kept.put(text.encode(), *key)
    return Disassembly(text, opcodes(text))


def disassemble_ahead(assemblies: Iterable[Assembly], nvdisasm: str) -> None:
    """Have at hand what `disassemble` will be asked for: one call of nvdisasm for all that it can read together.

    What it cannot, and what does not come back as it would alone, is left to `disassemble`.
    """
    reader = _reader(nvdisasm)
    groups: dict[object, list[tuple[bytes, MachineKernel]]] = {}
    for cubin in dict.fromkeys(a.cubin for a in assemblies):
        if (cubin, reader) not in _ahead and _kept.get(cubin, reader) is None and (kernel := kernel_of(cubin)):
            groups.setdefault(kernel.alike, []).append((cubin, kernel))
    for group in groups.values():
        for first in range(0, len(group), MOST):
            part = group[first : first + MOST]
            said = _disassemble(merged([k for _, k in part]), nvdisasm) if len(part) > 1 else None
            texts = parted([k for _, k in part], said) if isinstance(said, str) else None
            for (cubin, _), text in zip(part, texts or (), strict=texts is not None):
                _kept.put(text.encode(), cubin, reader)
                _ahead[cubin, reader] = text
    while len(_ahead) > MOST:
        _ahead.popitem(last=False)


def _reader(nvdisasm: str) -> bytes:
    """What decides how machine code reads: the file of nvdisasm, and its options."""
    status = os.stat(nvdisasm)
    return f"{nvdisasm} {status.st_size} {status.st_mtime_ns} {DISASSEMBLE}".encode()


# Code sections only, each instruction with its line of PTX; no analysis of the data flow, which costs a third more.
DISASSEMBLE = ("-c", "-gp", "-ndf")
_kept = DiskCache("sass")
_ahead: OrderedDict[tuple[bytes, bytes], str] = OrderedDict()  # by cubin and reader, until they are asked for


def making_ahead(path: str) -> contextlib.AbstractContextManager[None]:
    """While one process disassembles a case file's kernels ahead, others that would do so wait, to find them."""
    return _kept.making(b"ahead", path.encode())


def _disassemble(cubin: bytes, nvdisasm: str) -> str | Refusal:
    with tempfile.NamedTemporaryFile(prefix="ptxdiff-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [nvdisasm, *DISASSEMBLE, file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PTXAS_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Refusal("error", f"nvdisasm: {error}", stage="nvdisasm")
    if done.returncode:
        return Refusal("error", f"nvdisasm: {main_line(done.stderr or done.stdout)}", done.stderr, "nvdisasm")
    return done.stdout


_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)", re.M)


def opcodes(sass: str) -> dict[str, int]:
    """How often each opcode, with its modifiers, stands in SASS; the padding after the last EXIT left out."""
    counted = Counter(m["opcode"] for m in _INSTRUCTION.finditer(sass))
    counted.pop("NOP", None)
    return dict(sorted(counted.items()))
