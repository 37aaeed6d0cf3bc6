"""GPU code for snippets: the instruction as LLVM inline assembly, and numba's code of its definition.

Each snippet has two kernels. `run` reads inputs from arrays and stores results. `check` makes its own inputs, evaluates
instruction and definition, and counts differences, so that only a report of a few words leaves the device.

numba compiles the definitions for the host. llvmlite, on which numba depends, also has the NVPTX back end and lowers
the same LLVM code to PTX. It keeps every operation (no contraction), so the definition gives the same results on the
device.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ptxdiff.conformance.forms import LETTERS, FormSnippet, Port
from ptxdiff.conformance.inputs import SCATTER, Inputs, draw, shape_of
from ptxdiff.emulator.numeric.bits import mask, scalar
from ptxdiff.emulator.numeric.vectorise import ArrayFunction

KEPT = 8
"""The most indices of mismatches that a launch of `check` reports."""
REPORT_WORDS = 2 + KEPT
"""A report: mismatches; greatest distance << 32 | index - start; indices of the first mismatches (in no order)."""

_TRIPLE = "nvptx64-nvidia-cuda"
_SAFE = re.compile(r"llvm\.(fabs|sqrt|fma|floor|ceil|trunc|rint|copysign|umin|umax|smin|smax|abs|ctpop|ctlz|cttz)\.")
_SAFE_OTHERS = re.compile(
    r"llvm\.(vector\.reduce|masked|fshl|fshr|bswap|bitreverse|uadd|usub|sadd|ssub|umul|smul|assume|lifetime|is\.fpclass|experimental\.noalias)"
)


class NoDefinition(Exception):
    """A definition that cannot run on a device; the message says why."""


def checkable(snippet: FormSnippet) -> bool:
    """Whether a snippet has a definition that may run on a device."""
    return snippet.bulk and snippet.step is not None


def source(snippets: Sequence[FormSnippet], cpu: str, checks: bool) -> str:
    """PTX with the kernels `run_0`, `check_0`, `run_1`, ... of snippets; `cpu`: LLVM's name of the target ("sm_90").

    `checks`: include the kernels that compare on the device, for snippets that are `checkable`. Raises NoDefinition if
    a definition uses something that a device does not have.
    """
    names: dict[Callable[..., int], str] = {}
    kernels = []
    for number, snippet in enumerate(snippets):
        kernels.append(_run_kernel(number, snippet))
        if checks and checkable(snippet):
            assert snippet.step is not None
            for function in snippet.step.functions:
                names.setdefault(function.function, f"model_{len(names)}")
            kernels.append(_check_kernel(number, snippet, names))
    parts = []
    if names:
        parts = [_definition(draw, "draw"), _definition(distance, "distance")]
        parts += [_definition(function, name) for function, name in names.items()]
    head = [HEAD, _declare("draw", 9), _declare("distance", 6)] if names else [HEAD]
    head += [_declare(name, function.__code__.co_argcount) for function, name in names.items()]
    return lowered("\n".join(head + kernels), parts, cpu)


def _declare(name: str, arguments: int) -> str:
    return f"declare i64 @{name}({', '.join(['i64'] * arguments)})"


# LLVM -----------------------------------------------------------------------------------------------------

HEAD = """\
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
"""

FIRST_AND_STRIDE = """\
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ntid = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %ctaid = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %nctaid = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %base = mul i32 %ctaid, %ntid
  %first32 = add i32 %base, %tid
  %first = zext i32 %first32 to i64
  %stride32 = mul i32 %nctaid, %ntid
  %stride = zext i32 %stride32 to i64
"""
"""LLVM IR: where a thread of a grid begins, and how far its next element is."""

_LOOP = f"""\
define ptx_kernel void @{{name}}({{parameters}}) {{{{
entry:
{FIRST_AND_STRIDE}  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %latch ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
{{body}}
  br label %latch
latch:
  %next = add i64 %i, %stride
  br label %loop
done:
  ret void
}}}}
"""


def _run_kernel(number: int, snippet: FormSnippet) -> str:
    lines = []
    for k, port in enumerate(snippet.inputs):
        lines.append(f"%pin{k} = getelementptr i{port.bits}, ptr addrspace(1) %in{k}, i64 %i")
        lines.append(f"%r{k} = load i{port.bits}, ptr addrspace(1) %pin{k}, align {port.bits // 8}")
    lines += _instruction(snippet)
    for k, port in enumerate(snippet.outputs):
        lines.append(f"%pout{k} = getelementptr i{port.bits}, ptr addrspace(1) %out{k}, i64 %i")
        # The alignment prevents LLVM from storing halves: ptxas 12.9 turns `st.b32` of a .b64 register that an .f64
        # instruction wrote into a conversion to an integer.
        lines.append(f"store i{port.bits} %d{k}, ptr addrspace(1) %pout{k}, align {port.bits // 8}")
    pointers = [f"ptr addrspace(1) %in{k}" for k in range(len(snippet.inputs))]
    pointers += [f"ptr addrspace(1) %out{k}" for k in range(len(snippet.outputs))]
    return _LOOP.format(
        name=f"run_{number}", parameters=", ".join([*pointers, "i64 %count"]), body="\n".join("  " + x for x in lines)
    )


def _instruction(snippet: FormSnippet) -> list[str]:
    """The call of the inline assembly with inputs %r0... and outputs %d0...."""
    kinds = [f"i{p.bits}" for p in snippet.outputs]
    result = kinds[0] if len(kinds) == 1 else "{ " + ", ".join(kinds) + " }"
    arguments = ", ".join(f"i{p.bits} %r{k}" for k, p in enumerate(snippet.inputs))
    constraints = ",".join(
        [f"=&{LETTERS[p.bits]}" for p in snippet.outputs] + [LETTERS[p.bits] for p in snippet.inputs]
    )
    text = snippet.text.replace("\\", "\\5C").replace('"', "\\22")
    target = "%d0" if len(kinds) == 1 else "%d"
    lines = [f'{target} = call {result} asm sideeffect "{text}", "{constraints}"({arguments})']
    if len(kinds) > 1:
        lines += [f"%d{k} = extractvalue {result} %d, {k}" for k in range(len(kinds))]
    return lines


def _check_kernel(number: int, snippet: FormSnippet, names: dict[Callable[..., int], str]) -> str:
    step = snippet.step
    assert step is not None
    lines = ["%index = add i64 %start, %i", *_registers(snippet), *_instruction(snippet)]
    given = _arguments(snippet, step.functions[0], lines)
    verdicts = []
    for k, (function, port) in enumerate(zip(step.functions, snippet.outputs, strict=True)):
        constants = [f"i64 {c}" for c in function.constants]
        lines.append(f"%m{k} = call i64 @{names[function.function]}({', '.join([*given, *constants])})")
        lines += _compared(k, port, snippet.bound.form.approximate)
        verdicts.append(f"%v{k}")
    return _LOOP.format(
        name=f"check_{number}",
        parameters="ptr addrspace(1) %report, i64 %start, i64 %count",
        body="\n".join("  " + x for x in [*lines, *_reported(verdicts)]),
    )


def _registers(snippet: FormSnippet) -> list[str]:
    """The inputs: %x0... as 64-bit words, %r0... as registers."""
    lines = []
    inputs = Inputs(snippet)
    shift = sum(inputs.widths)
    lines.append(f"%word = mul i64 %index, {SCATTER}")
    for k, (port, width, shape) in enumerate(zip(snippet.inputs, inputs.widths, inputs.shapes, strict=True)):
        if inputs.exhaustive:
            shift -= width
            lines.append(f"%s{k} = lshr i64 %word, {shift}")
            lines.append(f"%x{k} = and i64 %s{k}, {(1 << width) - 1}")
        else:
            others = [f"%x{n}" if n < min(k, 2) else "0" for n in (0, 1)]
            arguments = ["%index", snippet.seed, k, *shape, *others]
            lines.append(f"%x{k} = call i64 @draw({', '.join(f'i64 {w}' for w in arguments)})")
        lines.append(f"%r{k} = trunc i64 %x{k} to i{port.bits}" if port.bits < 64 else f"%r{k} = add i64 %x{k}, 0")
    return lines


def _arguments(snippet: FormSnippet, function: ArrayFunction, lines: list[str]) -> list[str]:
    """The definition's sources from the inputs' words, extended as in the machine."""
    given = []
    immediates = dict(snippet.constants)
    ports = iter(enumerate(snippet.inputs))
    names = [s.name for s in snippet.bound.form.sources] + list(snippet.bound.form.reads)
    for name, (width, signed) in zip(names, function.sources, strict=True):
        if name in immediates:
            given.append(f"i64 {immediates[name]}")
            continue
        k, port = next(ports)
        if width < 64:
            lines.append(f"%w{k} = xor i64 %x{k}, {int(port.inverted)}")
            lines.append(f"%t{k} = trunc i64 %w{k} to i{width}")
            lines.append(f"%a{k} = {'sext' if signed else 'zext'} i{width} %t{k} to i64")
        given.append(f"i64 %a{k}" if width < 64 else f"i64 %x{k}")
    return given


def _compared(k: int, port: Port, approximate: bool) -> list[str]:
    """%v<k>: 0 where instruction and definition agree, a distance, or -1."""
    width = port.type.width
    lines = [f"%g{k} = trunc i{port.bits} %d{k} to i{width}"] if width < port.bits else []
    got = f"%g{k}" if width < port.bits else f"%d{k}"
    lines.append(f"%f{k} = xor i64 %m{k}, {int(port.inverted)}")
    lines.append(f"%e{k} = {'trunc i64' if width < 64 else 'add i64'} %f{k}{f' to i{width}' if width < 64 else ', 0'}")
    if not approximate:
        # Compare words of 32 or 64 bits, with narrower values in the upper bits, by an exclusive or in inline assembly,
        # which LLVM cannot optimise: ptxas 12.9 wrongly assumes that the upper half of the register that
        # `set.eq.f16.f16` writes is zero.
        wide, letter = (64, "l") if width == 64 else (32, "r")
        pair = [f"%e{k}", got]
        if width < wide:
            for name, value in zip("pq", pair, strict=True):
                lines.append(f"%{name}{k} = zext i{width} {value} to i{wide}")
                lines.append(
                    f'%{name}s{k} = call i{wide} asm "shl.b32 $0, $1, {wide - width};", "=r,r"(i{wide} %{name}{k})'
                )
            pair = [f"%ps{k}", f"%qs{k}"]
        operands = ", ".join(f"i{wide} {value}" for value in pair)
        xor = f'asm "xor.b{wide} $0, $1, $2;", "={letter},{letter},{letter}"({operands})'
        lines.append(f"%o{k} = call i{wide} {xor}")
        lines.append(f"%n{k} = icmp ne i{wide} %o{k}, 0")
        lines.append(f"%v{k} = sext i1 %n{k} to i64")
        return lines
    arguments = []
    for letter, value in (("p", f"%e{k}"), ("q", got)):
        lines.append(
            f"%{letter}{k} = zext i{width} {value} to i64" if width < 64 else f"%{letter}{k} = add i64 {value}, 0"
        )
        arguments.append(f"i64 %{letter}{k}")
    arguments += [f"i64 {n}" for n in shape_of(port.type, width)]
    lines.append(f"%v{k} = call i64 @distance({', '.join(arguments)})")
    return lines


def _reported(verdicts: list[str]) -> list[str]:
    """Add the results' verdicts to the report. Most inputs agree and access no memory."""
    lines = []
    joined = verdicts[0]
    for k, verdict in enumerate(verdicts[1:]):
        lines.append(f"%j{k} = or i64 {joined}, {verdict}")
        joined = f"%j{k}"
    return [
        *lines,
        f"%agree = icmp eq i64 {joined}, 0",
        "br i1 %agree, label %latch, label %apart",
        "apart:",
        f"%wrong = icmp slt i64 {joined}, 0",
        "br i1 %wrong, label %count_it, label %far",
        "count_it:",
        "%slot = atomicrmw add ptr addrspace(1) %report, i64 1 monotonic",
        f"%room = icmp ult i64 %slot, {KEPT}",
        "br i1 %room, label %keep, label %latch",
        "keep:",
        "%behind = add i64 %slot, 2",
        "%place = getelementptr i64, ptr addrspace(1) %report, i64 %behind",
        "store i64 %index, ptr addrspace(1) %place, align 8",
        "br label %latch",
        "far:",
        f"%shifted = shl i64 {joined}, 32",
        "%packed = or i64 %shifted, %i",
        "%peak = getelementptr i64, ptr addrspace(1) %report, i64 1",
        "%had = load volatile i64, ptr addrspace(1) %peak, align 8",
        "%farther = icmp ugt i64 %packed, %had",
        "br i1 %farther, label %raise, label %latch",
        "raise:",
        "%old = atomicrmw umax ptr addrspace(1) %peak, i64 %packed monotonic",
    ]


@cache
def _definition(function: Callable[..., int], name: str) -> str:
    """numba's LLVM code of a definition, as a function `name` of 64-bit integers."""
    from ptxdiff.emulator.numeric.vectorise import register_helpers, wrapping

    numba = register_helpers()
    names = [f"a{k}" for k in range(function.__code__.co_argcount)]
    given = ", ".join(names)
    scope: dict[str, Any] = {"function": function, "int64": numba.int64}
    exec(f"def model({given}):\n    return int64(function({given}))\n", scope)
    signature = numba.int64(*[numba.int64] * len(names))
    with wrapping():
        compiled = numba.cfunc(signature, nopython=True, error_model="numpy")(scope["model"])
    return portable(str(compiled._library.get_llvm_str()), name)


def portable(text: str, name: str) -> str:
    """numba's LLVM code of a C function, renamed, without what ties it to the host. Raises NoDefinition."""
    match = re.search(r"@(cfunc\.[\w.$]+)\(", text)
    assert match is not None
    text = text.replace(match[1], name)
    text = re.sub(r"^target (triple|datalayout).*$", "", text, flags=re.M)
    text = re.sub(r'"[\w-]+"="[^"]*"', "", text).replace("{ noinline }", "{ nounwind }")
    for declared in re.findall(r'^declare .*?@"?([\w.$]+)"?\(', text, re.M):
        if not (_SAFE.match(declared) or _SAFE_OTHERS.match(declared)):
            raise NoDefinition(f"the definition calls {declared}")
    if re.search(r"= [us](div|rem) i128", text):
        raise NoDefinition("the definition divides 128-bit integers")
    return text


@cache
def _back_end(cpu: str) -> tuple[Any, Any]:
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=cpu, features="+ptx78", opt=3)
    return llvm, machine


def lowered(kernels: str, parts: Sequence[str], cpu: str) -> str:
    """PTX of kernels and of the functions that they call, all in LLVM's language."""
    llvm, machine = _back_end(cpu)
    module = llvm.parse_assembly(kernels)
    for part in parts:
        linked = llvm.parse_assembly(part)
        for function in linked.functions:
            if not function.is_declaration and function.name.startswith("_Z"):
                function.linkage = "internal"
        for variable in linked.global_variables:
            if not variable.is_declaration:
                variable.linkage = "internal"
        module.link_in(linked)
    module.triple = _TRIPLE
    module.data_layout = str(machine.target_data)
    for function in module.functions:
        if not function.is_declaration and not function.name.startswith(("run_", "check")):
            function.linkage = "internal"
            # Inline calls and fold constants, so that no excluded branches and no calls remain: numba's code returns
            # values through memory.
            function.add_function_attribute("alwaysinline")
    options = llvm.create_pipeline_tuning_options(3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return str(machine.emit_assembly(module))


# ptxas ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CarriedAssembler:
    """A ptxas: its path, its release ("12.9"), and the version of PTX it reads ("8.8")."""

    path: str
    release: str
    ptx: str


def assemblers() -> list[CarriedAssembler]:
    """The assemblers in the installed Triton, newest first."""
    from ptxdiff.triton.targets import tool

    carried = []
    for name in ("ptxas", "ptxas-blackwell"):
        path = tool(name)
        if path.exists():
            version_text = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=60).stdout
            release = re.search(r"release (\d+)\.(\d+)", version_text)
            if release:
                major, minor = int(release[1]), int(release[2])
                carried.append(
                    (major, minor, CarriedAssembler(str(path), f"{major}.{minor}", ptx_version(major, minor)))
                )
    return [a for *_, a in sorted(carried, key=lambda f: f[:2], reverse=True)]


def ptx_version(major: int, minor: int) -> str:
    """The PTX ISA version of a CUDA release (PTX ISA, release notes); from 13 on it follows from the release number."""
    if major >= 13:
        return f"{major - 4}.{minor}"
    return f"8.{minor}" if minor <= 5 else f"8.{minor - 1}"


@dataclass(frozen=True)
class Refused:
    """ptxas refused the PTX: its message, and the numbers of the snippets at fault."""

    words: str
    blamed: dict[int, str]


def assembled(ptx: str, target: str, assembler: CarriedAssembler) -> bytes | Refused:
    """The cubin for PTX from `source`, for a target ("sm_90a")."""
    ptx = re.sub(r"^\.version .*$", f".version {assembler.ptx}", ptx, count=1, flags=re.M)
    ptx = re.sub(r"^\.target .*$", f".target {target}", ptx, count=1, flags=re.M)
    with tempfile.TemporaryDirectory(prefix="ptxdiff-") as folder:
        text, cubin = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        text.write_text(ptx)
        command = [assembler.path, f"--gpu-name={target}", str(text), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600)
        if done.returncode == 0:
            return cubin.read_bytes()
    said = done.stdout + done.stderr
    return Refused(said.strip(), _blamed(ptx, said))


def _blamed(ptx: str, said: str) -> dict[int, str]:
    """The snippets with errors of ptxas, with its first message for each."""
    owner: list[int] = []
    current = -1
    for line in ptx.splitlines():
        if match := re.match(r"\s*\.visible \.entry (?:run|check)_(\d+)", line):
            current = int(match[1])
        owner.append(current)
    blamed: dict[int, str] = {}
    for match in re.finditer(r"line (\d+); \w+\s*:\s*(.*)", said):
        number = owner[min(int(match[1]), len(owner)) - 1]
        if number >= 0:
            blamed.setdefault(number, match[2].strip())
    return blamed


# The distance between two results of an approximate instruction ----------------------------------------------------

DIFFERENT = -1
"""No distance is defined: NaN, infinity or zero on one side only, different NaNs, zeros of different sign."""


@scalar
def code_distance(expected: int, got: int, ebits: int, mbits: int) -> int:
    """Ulps between two floats, at most 2**31 - 1; DIFFERENT if the distance is not defined."""
    if expected == got:
        return 0
    size = ebits + mbits
    a, b = expected & mask(size), got & mask(size)
    top = mask(ebits) << mbits
    if a >= top or b >= top or a == 0 or b == 0:
        return -1
    farthest = 0x7FFFFFFF
    # Clamped before the addition, because the sum of two float64 patterns may exceed 2**63.
    apart = abs(a - b) if (expected ^ got) >> size & 1 == 0 else min(a, farthest) + min(b, farthest)
    return min(apart, farthest)


@scalar
def distance(expected: int, got: int, codes: int, width: int, ebits: int, mbits: int) -> int:
    """The greatest distance of a register's codes in ulp, or DIFFERENT. Unequal integers are DIFFERENT."""
    worst = 0
    for position in range(codes):
        a = expected >> (position * width) & mask(width)
        b = got >> (position * width) & mask(width)
        if ebits == 0 and a != b:
            return -1
        apart = code_distance(a, b, ebits, mbits) if ebits else 0
        if apart < 0:
            return -1
        worst = max(worst, apart)
    return worst
