"""Elementwise variants timed in registers: clocks for each application in a chain, results per clock and SM in a loop.

Variants that wait for memory take equally long. The cost of an instruction shows only where arithmetic is the limit. So
each variant is repeated inside one kernel, whose machine code is checked before it is timed. A sample is the difference
of two launches, the second with twice as many steps, by the SM's own clock: code before and after the loop cancels, and
the clock's frequency does not matter. All arms are launched in rounds, each round in another random order; the first
variant is launched twice (the A/A run).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ptxdiff.jobs import Job, Setup
from ptxdiff.model.arguments import format_of
from ptxdiff.model.compilers import compiler_of
from ptxdiff.model.derive import asm_form, packs_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.variants import AsmVariant, KernelVariant
from ptxdiff.records import InRegisters, Key, statistics
from ptxdiff.records.in_registers import ALONE, CLOCK, MODES, Mode
from ptxdiff.timing import CannotTime
from ptxdiff.triton.assemble import Assembly, Disassembly, assemble, disassemble
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.elementwise import TEMPLATE_FILE, TEMPLATES, InlineAsm, PlainFunction, computation_arguments
from ptxdiff.triton.launch import launch_of
from ptxdiff.triton.ptxas import label_of_tool
from ptxdiff.triton.spec import Compilation, Constant, FunctionRef, KernelSpec, Parameters, PointerType, specialise

_PAIRS = frozenset({"e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2"})
# Opcode; modifiers, one of which the instruction must have (none required if empty); and the opcodes of machine code,
# one of which the loop must have. Read from the loops of the catalogue's asm: all of these for sm_90a; popc and dp4a
# also for sm_80 (ptxas 12.9) and sm_100a (ptxas 13.4); conversions and tanh also for sm_100a.
HOLDS: tuple[tuple[str, frozenset[str], tuple[str, ...]], ...] = (
    *((name, frozenset({"approx", "full"}), ("MUFU",)) for name in ("rcp", "rsqrt", "sqrt", "div", "ex2", "lg2")),
    *((name, frozenset({"approx"}), ("MUFU",)) for name in ("sin", "cos", "tanh")),
    ("cvt", _PAIRS, ("F2FP",)),
    ("fma", frozenset({"f16x2", "bf16x2"}), ("HFMA2",)),
    ("popc", frozenset(), ("POPC",)),
    ("brev", frozenset(), ("BREV",)),
    ("dp4a", frozenset(), ("IDP",)),
    ("dp2a", frozenset(), ("IDP",)),
    ("clz", frozenset(), ("FLO",)),
    ("bfind", frozenset(), ("FLO",)),
)


class Lacks(ValueError):
    """A loop lacks an instruction that the asm has. The message names both."""


def held_in(text: str, opcodes: Mapping[str, float]) -> None:
    """Check a loop's opcodes, by count for each application, against asm. Raises Lacks."""
    for spelling in _spellings(text):
        name, *modifiers = spelling.split(".")
        for opcode, one_of, machine in HOLDS:
            if name != opcode or (one_of and not one_of & {*modifiers}):
                continue
            if not any(count > 0 and timed.startswith(machine) for timed, count in opcodes.items()):
                there = ", ".join(opcodes) or "nothing"
                raise Lacks(f"the asm has {spelling}, but the loop has no {' or '.join(machine)}: it holds {there}")


def _spellings(text: str) -> Iterator[str]:
    from ptxdiff.emulator.text import CodeBlock, Instruction, parse_asm

    waiting: list[Any] = [parse_asm(text)[0]]
    while waiting:
        node = waiting.pop()
        if isinstance(node, CodeBlock):
            waiting += node.statements
        elif isinstance(node, Instruction):
            yield node.spelling


TWIN = "(the first again)"
WARPS = {"throughput": 16, "latency": 1}
CHAINS = 8  # independent results of a thread, for throughput
UNROLL = {"throughput": 2, "latency": 8}
CLOCKS = 150_000  # of the shorter launch of a sample, about
ROUNDS = 61


@dataclass(frozen=True)
class Arm:
    """One loop, ready to be launched. results: of one application, in a block. opcodes: per result (`latency`: per
    application).
    """

    name: str
    mode: Mode
    cubin: bytes
    entry: str
    shared: int
    warps: int
    block: int
    unroll: int
    parameters: int
    results: int
    opcodes: Mapping[str, float]
    pack: int = 1
    held: bool = True
    ptxas: str = ""


@dataclass(frozen=True)
class LoopSamples:
    """An arm's samples: clocks of one application by the whole block. noise: the A/A run's difference."""

    name: str
    mode: Mode
    samples: tuple[float, ...]
    noise: float


@dataclass(frozen=True)
class Untimed:
    """A loop that could not be made, and why."""

    name: str
    mode: Mode
    words: str

    def __str__(self) -> str:
        return f"{self.name}, {self.mode}: {self.words}"


def arms(
    loaded: LoadedCase, target: str, nvdisasm: str, variants: Sequence[str] = ()
) -> tuple[list[Arm], list[Untimed]]:
    """The loops of a case's variants in both modes, and the loops that could not be made.

    Raises CannotTime for a case whose variants cannot be repeated in registers.
    """
    case = loaded.case
    if not case.elementwise or not case.inputs:
        raise CannotTime(f"{loaded.name}: only elementwise variants with inputs are timed in registers")
    names = variants or tuple(case.variants)
    if any(format_of(a).unit_bits > 32 for a in (*case.inputs.values(), *case.outputs.values())):
        return [], [Untimed(n, m, "units of 64 bits are not fed back in registers") for n in names for m in MODES]
    loops: list[Arm] = []
    notes: list[Untimed] = []
    if carries(loaded):
        loops, notes = _all(loaded, names, target, nvdisasm, held=False)
    if not loops or notes or any(opcode.startswith(BRANCHES) for arm in loops for opcode in arm.opcodes):
        # ptxas replaces the reciprocal of a reciprocal by the number itself and drops that loop; held inputs prevent
        # this.
        held, refused = _all(loaded, names, target, nvdisasm, held=True)
        if len({a.name for a in held} - {ALONE}) >= len({a.name for a in loops}):
            loops, notes = held, refused
    return loops, notes


BRANCHES = ("CALL", "BRA", "BSSY")


def carries(loaded: LoadedCase) -> bool:
    """Whether results can become the next inputs: the case has as many outputs as inputs, in the same formats.

    False if a variant has a slow path, because the numbers would reach it after some steps.
    """
    ins, outs = ([format_of(a) for a in side.values()] for side in (loaded.case.inputs, loaded.case.outputs))
    return outs == ins[: len(outs)]


def _all(
    loaded: LoadedCase, names: Sequence[str], target: str, nvdisasm: str, *, held: bool
) -> tuple[list[Arm], list[Untimed]]:
    loops: list[Arm] = []
    notes: list[Untimed] = []
    for mode in MODES:
        made = [a for name in names for a in _of(loaded, name, mode, target, nvdisasm, notes, held=held)]
        if made and held and all(format_of(a).unit_bits == 32 for a in loaded.case.inputs.values()):
            alone = list(_of(loaded, made[0].name, mode, target, nvdisasm, [], held=True, bare=True))
            empty = [a for a in made if alone and a.opcodes == alone[0].opcodes]
            notes += (Untimed(a.name, mode, "the loop holds only code that feeds results back") for a in empty)
            made = [a for a in made if a not in empty] + alone
        loops += made
    return loops, list(dict.fromkeys(notes))


def _of(
    loaded: LoadedCase,
    name: str,
    mode: Mode,
    target: str,
    nvdisasm: str,
    notes: list[Untimed],
    *,
    held: bool,
    bare: bool = False,
) -> Iterator[Arm]:
    case, variant = loaded.case, loaded.case.variants[name]
    label = ALONE if bare else name
    if isinstance(variant, KernelVariant) or compiler_of(case, variant):
        notes.append(Untimed(name, mode, "a kernel, or one that another build compiles, is not repeated in registers"))
        return
    packs = packs_of(case, variant) if isinstance(variant, AsmVariant) else (1,)
    pack = max(packs) if mode == "throughput" else min(packs)
    each = CHAINS if mode == "throughput" else pack
    if each % pack:
        notes.append(Untimed(name, mode, f"pack {pack} does not divide the {CHAINS} results of a thread"))
        return
    block = 32 * WARPS[mode] * each
    setup = Setup(pack=pack, shape=(block,), fusion=bool(variant.fusion))
    job = Job(case, loaded.name, loaded.path, name, variant, target, setup)
    reason = ""
    for unroll in (UNROLL[mode], 2 * UNROLL[mode], 4 * UNROLL[mode]):  # LLVM unrolls a small loop, with a remainder
        try:
            made = _loop(job, mode, unroll, each // pack if mode == "latency" else each, nvdisasm, held, bare)
            if not bare and not isinstance(made, Refusal) and isinstance(variant, AsmVariant):
                held_in(asm_form(case, variant, pack).text, made.opcodes)
        except (NotALoop, Lacks, ValueError, TypeError) as error:
            reason = reason or str(error)
            continue
        if isinstance(made, Refusal):
            notes.append(Untimed(label, mode, f"{made.kind}: {made.words}"))
        else:
            yield replace(made, name=label, pack=pack, held=held)
        return
    notes.append(Untimed(label, mode, reason))


def _loop(job: Job, mode: Mode, unroll: int, each: int, nvdisasm: str, held: bool, bare: bool) -> Arm | Refusal:
    """A job's loop. each: results of a thread in one application; for latency, its applications. Raises NotALoop."""
    kernel, block = launch_of(job).elementwise, job.setup.shape[0]
    assert kernel is not None
    loops = []
    for times in (unroll, 2 * unroll):
        ins, outs, fusion = kernel.inputs, kernel.outputs, job.setup.fusion
        repeated = Repeated(kernel.computation, ins, outs, block, WARPS[mode], times, fusion, bare, held)
        loop = assembled(repeated, job.target, nvdisasm)
        if isinstance(loop, Refusal):
            return loop
        loops.append(loop)
    made, twice = loops
    opcodes = per_application(made, twice, unroll * each)
    shared, parameters = made.compilation.shared, made.parameters
    return Arm(
        "", mode, made.assembly.cubin, made.compilation.entry, shared, WARPS[mode], block, unroll, parameters, block,
        opcodes, ptxas=label_of_tool(made.compilation.ptxas),
    )  # fmt: skip


Clocked = Callable[[Arm, int], float]
"""Clocks between the two readings of an arm's launch, for a number of steps of its loop."""


def sampled(made: Sequence[Arm], clocked: Clocked, rounds: int = ROUNDS, seed: int = 0) -> list[LoopSamples]:
    """Each arm's samples. The two modes are sampled apart. Raises CannotTime if more steps take no more clocks."""
    samples: list[LoopSamples] = []
    for mode in MODES:
        group = [a for a in made if a.mode == mode]
        if group:
            samples += _sampled(group, clocked, rounds, random.Random(seed))
    return samples


def _sampled(group: Sequence[Arm], clocked: Clocked, rounds: int, order: random.Random) -> list[LoopSamples]:
    named = {**{a.name: a for a in group}, TWIN: group[0]}
    steps = {name: _steps(arm, clocked) for name, arm in named.items()}
    samples: dict[str, list[float]] = {name: [] for name in named}
    for _ in range(rounds):
        names = list(named)
        order.shuffle(names)
        for name in names:
            arm, count = named[name], steps[name]
            shorter, longer = clocked(arm, count), clocked(arm, 2 * count)
            samples[name].append((longer - shorter) / (count * arm.unroll))
    if slow := [name for name, times in samples.items() if min(times) <= 0]:
        raise CannotTime(f"{slow[0]}: twice as many steps of the loop took no longer in at least one round")
    noise = statistics.noise_of(*([CLOCK * s for s in samples[n]] for n in (group[0].name, TWIN)))
    return [LoopSamples(name, arm.mode, tuple(samples[name]), noise) for name, arm in named.items() if name != TWIN]


def _steps(arm: Arm, clocked: Clocked) -> int:
    few = 16
    clocked(arm, few)  # the first launch loads the code
    each = (clocked(arm, 5 * few) - clocked(arm, few)) / (4 * few)
    if each <= 0:
        raise CannotTime(f"{arm.name}: {4 * few} more steps of the loop took no more clocks")
    return max(few, round(CLOCKS / each))


def time_in_registers(
    loaded: LoadedCase, target: str, variants: Sequence[str] = (), limit: float | None = None
) -> tuple[InRegisters, ...]:
    """Time a case's variants in the process that owns the GPU, which no other ptxdiff process uses meanwhile.

    A loop that could not be made has a record with the reason. limit: seconds allowed on the device. Raises CannotTime
    for a case that is not elementwise, and DeviceFault if the process does not answer.
    """
    import numpy as np

    from ptxdiff.inputs.sets import seed_of
    from ptxdiff.processes.child import SWEEP_LIMIT, of_target
    from ptxdiff.timing.candidates import INPUT_SET, typical
    from ptxdiff.triton.targets import tool

    device = of_target(target)
    if device is None:
        raise CannotTime(f"no GPU here is {target}")
    made, untimed = arms(loaded, target, str(tool("nvdisasm")), variants)
    if not made:
        return tuple(not_timed(loaded, target, untimed))
    rng = np.random.default_rng(seed_of(INPUT_SET))
    largest = max(arm.block for arm in made)
    units = [typical(format_of(a), largest, rng) for a in loaded.case.inputs.values()]
    sizes = [format_of(a).unit_bits // 8 for a in loaded.case.outputs.values()]
    call = (f"{__name__}:measure", made, units, sizes, ROUNDS)
    measurements: Measurements = device.call(*call, limit=limit or SWEEP_LIMIT, alone=True)
    return (*records_of(loaded, target, made, measurements), *not_timed(loaded, target, untimed))


def records_of(loaded: LoadedCase, target: str, made: Sequence[Arm], found: Measurements) -> Iterator[InRegisters]:
    """The measurements of arms, as records."""
    case = loaded.case
    size = sum(format_of(a).unit_bits for a in (*case.inputs.values(), *case.outputs.values())) / 8
    known = {(a.name, a.mode): a for a in made}
    for m in found.measured:
        arm = known[m.name, m.mode]
        middle = statistics.median([CLOCK * s for s in m.samples])
        yield InRegisters(
            _key(loaded, target, arm.name, arm.mode, arm.pack, arm.warps, held=arm.held),
            arm.results,
            m.samples,
            median=middle.value / CLOCK,
            low=max(middle.low / CLOCK, min(m.samples)),
            high=middle.high / CLOCK,
            noise=m.noise,
            opcodes=dict(arm.opcodes),
            bytes=size,
            bytes_per_clock=found.bytes_per_clock,
            megahertz=found.megahertz,
            device=found.device,
            ptxas=arm.ptxas,
        )


def not_timed(loaded: LoadedCase, target: str, untimed: Sequence[Untimed]) -> Iterator[InRegisters]:
    """The records of loops that could not be made."""
    for u in untimed:
        yield InRegisters(_key(loaded, target, u.name, u.mode, 1, WARPS[u.mode], held=True), words=u.words)


def _key(loaded: LoadedCase, target: str, name: str, mode: Mode, pack: int, warps: int, *, held: bool) -> Key:
    way = "held" if held else "carried"
    return Key(loaded.name, name, target, "gpu", pack, mode, num_warps=warps, context=way)


# ---- in the GPU's process ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurements:
    """Measurements on a device. bytes_per_clock: read and written by a large copy, for each SM and clock."""

    device: str
    bytes_per_clock: float
    megahertz: float
    measured: tuple[LoopSamples, ...]


def measure(made: Sequence[Arm], inputs: Sequence[Any], outputs: Sequence[int], rounds: int) -> Measurements:
    """Time arms on the GPU of this process. inputs: numpy units of each input, repeated to fill blocks; outputs: bytes
    of a unit of each output. Raises CudaError.
    """
    import numpy as np

    from ptxdiff.conformance.fetch import CudaContext

    cuda = CudaContext()
    largest = max(a.block for a in made) * cuda.processors
    pointers = []
    for units in inputs:
        pointers.append(cuda.allocate(largest * units.itemsize))
        cuda.upload(pointers[-1], np.resize(units, largest))
    pointers += [cuda.allocate(largest * size) for size in outputs]
    clocks = cuda.allocate(16 * cuda.processors)
    kernels = {id(a): cuda.kernel(cuda.load(a.cubin), a.entry) for a in made}
    read = np.zeros((cuda.processors, 2), dtype=np.int64)

    def clocked(arm: Arm, steps: int) -> float:
        given = [*pointers, clocks, steps, 0, 0]
        values = given + [0] * (arm.parameters - len(given))
        cuda.start(kernels[id(arm)], values, cuda.processors, 32 * arm.warps, arm.shared)
        cuda.download(read, clocks)
        return float(np.median(read[:, 1] - read[:, 0]))

    measured = sampled(made, clocked, rounds)
    device, rate, megahertz = _memory()
    return Measurements(device, rate / (cuda.processors * megahertz * 1e6), megahertz, tuple(measured))


def _memory() -> tuple[str, float, float]:
    """The GPU's UUID, bytes per second that a copy of 1 GiB reads and writes, and the SM's clock in MHz meanwhile."""
    import torch

    from ptxdiff.timing.session import Clocks

    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    device = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    clocks = Clocks(device)
    seconds = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        target.copy_(source)
        end.record()
        clocks.read()
        torch.cuda.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    clock_rates = sorted(r.sm for r in clocks.readings)
    if not clock_rates:
        raise CannotTime("the SM's clock cannot be read: neither NVML nor nvidia-smi answers")
    return device, 2 * source.numel() / sorted(seconds)[len(seconds) // 2], float(clock_rates[len(clock_rates) // 2])


# ---- The kernel that repeats an elementwise variant in registers, and the opcodes of its machine code's loop ---------


class NotALoop(ValueError):
    """The machine code is not the expected loop. The message says how it differs."""


@dataclass(frozen=True)
class Repeated:
    """A variant repeated in registers.

    inputs, outputs: Triton's names of element types. block: elements of a block of `warps` warps. unroll: applications
    in one step of the loop. bare: without the variant, so that only the code that feeds results back remains. held: the
    inputs keep their values, and one LOP3 for each makes them wait for the results; if false, results become the next
    inputs.
    """

    computation: InlineAsm | PlainFunction
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    block: int
    warps: int
    unroll: int
    fusion: bool = False
    bare: bool = False
    held: bool = True

    @property
    def carry(self) -> tuple[int, ...] | None:
        """The number of the output that becomes each input, -1 for none; None if inputs are held."""
        return None if self.held else tuple(k if k < len(self.outputs) else -1 for k in range(len(self.inputs)))

    def spec(self, target: str) -> KernelSpec:
        """The compilation for a worker."""
        arguments: dict[str, Any] = {
            "ins": tuple(PointerType(t) for t in self.inputs),
            "outs": tuple(PointerType(t) for t in self.outputs),
            "clocks": PointerType("i64"),
            "steps": 3,
            "zero": 3,
            "other": 3,
            **computation_arguments(self.computation, Constant),
            "CARRY": self.carry,
            "BARE": self.bare,
            "UNROLL": self.unroll,
            "BLOCK": self.block,
        }
        return specialise(
            FunctionRef(TEMPLATES, TEMPLATE_FILE, "in_registers"),
            arguments,
            Parameters(frozenset(filter(str.isupper, arguments)), unspecialised=frozenset({"steps", "zero", "other"})),
            target=target,
            enable_fp_fusion=self.fusion,
            num_warps=self.warps,
        )


@dataclass(frozen=True)
class Assembled:
    """Machine code with a loop. body: the count of each opcode in it. parameters: of the entry, with hidden ones."""

    compilation: Compilation
    assembly: Assembly
    body: Mapping[str, int]
    parameters: int


def assembled(kernel: Repeated, target: str, nvdisasm: str) -> Assembled | Refusal:
    """Compile, assemble and disassemble for a target. Raises NotALoop."""
    compilation = compile_kernel(kernel.spec(target))
    if isinstance(compilation, Refusal):
        return compilation
    compilation = replace(compilation, ptx=kept_rolled(compilation.ptx))
    assembly = assemble(compilation)
    if isinstance(assembly, Refusal):
        return assembly
    sass = disassemble(assembly, nvdisasm)
    if not isinstance(sass, Disassembly):
        return sass
    entry = compilation.ptx[compilation.ptx.index(".entry") :].partition(")")[0]
    return Assembled(compilation, assembly, loop_body(sass.text), entry.count(".param"))


_LABEL = re.compile(r"^\$L__BB\w+:[^\n]*\n", re.M)


def kept_rolled(ptx: str) -> str:
    """PTX whose loops ptxas does not unroll: a pragma follows the label of each block of code."""
    return _LABEL.sub(lambda m: m[0] + '\t.pragma "nounroll";\n', ptx) if "nounroll" not in ptx else ptx


_LINE = re.compile(
    r"^(?P<label>\.L_\w+):"
    r"|^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<rest>[^;]*);",
    re.M,
)
_BRANCH = re.compile(r"`\((?P<label>\.L_\w+)\)")
# Opcodes that must not be in the loop: memory, clocks, barriers, and reads of special registers.
FOREIGN = ("LD", "ST", "ATOM", "RED", "CS2R", "S2", "BAR", "MEMBAR", "ERRBAR", "UBLK", "SHFL", "VOTE", "EXIT", "DEPBAR")


def loop_body(sass: str) -> dict[str, int]:
    """The opcodes of the innermost loop between the two readings of the clock, by count. Raises NotALoop.

    A subroutine that the loop calls, such as the slow path of a division, is not counted: it stands outside the loop.
    """
    places: dict[str, int] = {}
    code: list[tuple[str, str]] = []
    for line in _LINE.finditer(sass):
        if line["label"]:
            places[line["label"]] = len(code)
        else:
            code.append((line["opcode"], line["rest"]))
    clocks = [k for k, (opcode, rest) in enumerate(code) if "SR_CLOCK" in rest]
    if len(clocks) != 2:
        raise NotALoop(f"the clock is read {len(clocks)} times instead of before and after the loop")
    backward = []
    for k, (opcode, rest) in enumerate(code):
        target = _BRANCH.search(rest) if opcode.startswith("BRA") else None
        if target and clocks[0] < places.get(target["label"], len(code)) <= k < clocks[1]:
            backward.append((places[target["label"]], k))
    if len(backward) != 1:
        raise NotALoop(f"there are {len(backward)} loops between the readings of the clock instead of one")
    begin, end = backward[0]
    body = [opcode for opcode, _ in code[begin : end + 1]]
    if foreign := sorted({o for o in body if o.startswith(FOREIGN)}):
        raise NotALoop(f"the loop holds {', '.join(foreign)}")
    return dict(sorted(Counter(o for o in body if o != "NOP").items()))


def per_application(one: Assembled, two: Assembled, times: int) -> dict[str, float]:
    """The opcodes of one application, from loops of `times` and of twice as many applications. Raises NotALoop.

    The difference of the two loops leaves out the loop's own instructions. An application that was merged with another,
    moved out of the loop or dropped would make the difference too small.
    """
    grown = Counter(two.body)
    grown.subtract(one.body)
    total = sum(grown.values())
    own = sum(one.body.values()) - total
    if total < times:
        raise NotALoop(f"{times} more applications add {total} instructions: some were merged or moved out of the loop")
    if abs(own) > max(OWN, total // 10):
        raise NotALoop(f"the loop holds {own} instructions of its own, and {total} of the applications")
    return {opcode: count / times for opcode, count in sorted(grown.items()) if count}


OWN = 24  # counter, comparison, branch, and copies; for long loops a tenth, because ptxas chooses other instructions
