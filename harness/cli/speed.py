"""`ptxdiff speed`: time the variants of cases on the GPU here, and compare with a copy of the same size and PyTorch."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff import options
from ptxdiff.cli import NAMES, UsageError, named

if TYPE_CHECKING:
    from rich.console import Console

    from ptxdiff.model.compilers import PtxasChoice
    from ptxdiff.model.load import LoadedCase
    from ptxdiff.records import InRegisters, Timing
    from ptxdiff.timing import Session


def time_case(console: Console, loaded: LoadedCase, target: str, variants: Sequence[str]) -> bool:
    """Time a case's variants in registers on the GPU here, and print the times. Returns whether any was timed."""
    from ptxdiff.processes.child import DeviceFault
    from ptxdiff.timing import CannotTime
    from ptxdiff.timing.in_registers import time_in_registers

    try:
        timed = time_in_registers(loaded, target, variants)
    except (CannotTime, DeviceFault, RuntimeError) as error:
        console.print(f"{loaded.name}: {error}", markup=False, highlight=False, soft_wrap=True)
        return False
    _print_in_registers(console, loaded.name, target, [t for t in timed if not t.words])
    for t in timed:
        if t.words:
            note = f"  note: {t.key.variant}, {t.mode}: {t.words}"
            console.print(note, markup=False, highlight=False, soft_wrap=True)
    return any(not t.words for t in timed)


def _print_in_registers(console: Console, name: str, target: str, found: Sequence[InRegisters]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ptxdiff.records.in_registers import UNITS, pays_lines

    for mode, unit in UNITS.items():
        group = [t for t in found if t.mode == mode]
        if not group:
            continue
        unit_text = f"{unit}, in a dependent chain" if mode == "latency" else unit
        table = Table(title=Text(f"{name}, in registers on {target}: {unit_text}"), title_justify="left", box=None)
        for heading in ("", unit, "95% interval", "beside the first", "instructions"):
            table.add_column(heading, justify="right" if heading in (unit, "95% interval") else "left")
        for t in group:
            table.add_row(*_row_in_registers(t, group[0]))
        console.print(table, markup=False)
        noise, samples = 100 * group[0].noise, len(group[0].samples)
        console.print(f"A/A {noise:.2f}%; {samples} samples each, by the SM's clock", highlight=False)
    for line in pays_lines(found):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    console.print("")


def _row_in_registers(t: InRegisters, first: InRegisters) -> tuple[str, ...]:
    from ptxdiff.records.compare import change_of

    beside = ""
    if t is not first:
        compared = t.beside(first)
        beside = f"{compared.verdict} {change_of(compared)}"
    opcodes = ", ".join(f"{count:g} {opcode}" for opcode, count in t.opcodes.items())
    return t.key.variant, f"{t.value:.3f}", "{:.3f} to {:.3f}".format(*t.interval), beside, opcodes


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "cases", nargs="*", default=["cases"], metavar="NAME", help=f"{NAMES} (default: all of ./cases)"
    )
    parser.add_argument(
        "--size", action="append", default=[], metavar="SIZE",
        help="small, L2, large, or a number of elements such as 1000000 or 2^28 (repeatable; default: large)",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--in-registers", action="store_true",
        help="time elementwise variants only in registers, as throughput and latency (default: in memory as well)",
    )  # fmt: skip
    where.add_argument("--in-memory", action="store_true", help="time variants only on tensors in memory")
    assembler = options.add(
        parser,
        "assembler",
        "the ptxas that makes the machine code: the path of a program, or bundled for Triton's own (repeatable)",
    )
    options.formerly(parser, "--ptx-assembler", assembler)
    options.formerly(parser, "--ptx-opt", options.add(parser, "opt", "ptxas's level (repeatable; default: 3)"))
    options.add(parser, "seconds", "seconds of launches at each size (default: 1)", default=1.0)


def main(args: argparse.Namespace) -> int:
    """Time the named variants and print the times. Returns 0 if all could be timed, else 1."""
    from rich.console import Console

    chosen = named(args.cases)
    sizes = [_size(word) for word in args.size or ["large"]]
    from ptxdiff.processes.child import DeviceFault
    from ptxdiff.processes.gpus import gpus
    from ptxdiff.timing import CannotTime
    from ptxdiff.timing.session import time_on_device

    if not gpus():
        raise UsageError("there is no NVIDIA GPU here")
    target = gpus()[0].target
    assemblers = _assemblers(args, target)
    if elsewhere := [n for n in chosen if n.target not in ("", target) or n.backend not in ("", "gpu")]:
        asked = f"{elsewhere[0].target}-{elsewhere[0].backend}"
        raise UsageError(f"variants are timed on the GPU here, which is {target}, but the name asks for {asked}")
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width, but the tables need one
        console = Console(width=150)
    missed = 0
    for n in chosen:
        loaded, variants = n.loaded, () if n.whole else n.variants
        if args.in_registers:
            missed += not time_case(console, loaded, target, variants)
            continue
        try:
            session = time_on_device(
                None, str(loaded.path.resolve()), loaded.attribute, target, assemblers, variants, sizes, args.seconds
            )
        except (CannotTime, DeviceFault) as error:
            console.print(f"{loaded.name}: {error}", markup=False, highlight=False, soft_wrap=True)
            missed += 1
            continue
        _print(console, loaded.name, session)
        if None in assemblers and not args.in_memory and loaded.case.elementwise and loaded.case.inputs:
            missed += not time_case(console, loaded, target, variants)
    return 1 if missed else 0


def _assemblers(args: argparse.Namespace, target: str) -> tuple[PtxasChoice | None, ...]:
    """The assemblers to time with; each gets its own tables. None stands for Triton's."""
    if not (args.assembler or args.opt):
        return (None,)
    from ptxdiff.running.assemblers import AssemblerChoice, parsed
    from ptxdiff.triton.builds import NoTriton
    from ptxdiff.triton.ptxas import NoAssembler

    if args.in_registers:
        raise UsageError("--in-registers times what Triton assembles: leave out --assembler and --opt")
    try:
        places = [parsed(path, Path.cwd()) for path in args.assembler or []]
        return AssemblerChoice.of(places, args.opt, "quick").resolved("gpu", target)
    except (NoAssembler, NoTriton) as error:
        raise UsageError(f"--assembler: {error}") from None


def _size(word: str) -> str | int:
    if word in ("small", "L2", "large"):
        return word
    power = re.fullmatch(r"2(?:\^|\*\*)(\d+)", word)
    if power:
        return 1 << int(power[1])
    if not word.replace("_", "").isdigit():
        raise UsageError(f"--size {word}: give small, L2, large, or a number of elements such as 2^28")
    return int(word)


def _print(console: object, name: str, session: Session) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    assert isinstance(console, Console)
    for shape, assembler in dict.fromkeys((t.key.shape, t.key.assembler) for t in session.timings):
        timings = [t for t in session.timings if (t.key.shape, t.key.assembler) == (shape, assembler)]
        first = timings[0]
        by = f", by {assembler}" if assembler else ""
        title = Text(f"{name}, {shape} elements on {first.key.target}{by}")
        table = Table(title=title, title_justify="left", box=None)
        for heading in ("", "median", "95% interval", "bytes", "elements", "of the copy", "beside the first"):
            table.add_column(heading, justify="left" if heading in ("", "beside the first") else "right", no_wrap=True)
        for t in timings:
            table.add_row(*_row(t, first))
        table.add_row("copy", f"{1e6 * first.copy:.2f} µs", "", f"{first.bytes / first.copy / 1e12:.2f} TB/s")
        console.print(table, markup=False)  # names may contain brackets
        clocks = ", ".join(f"{n} {mhz} MHz" for n, mhz in first.clocks.items()) or "clocks unknown"
        console.print(
            f"A/A {100 * first.noise:.2f}%; empty kernel {1e6 * first.launch:.2f} µs; {len(first.samples)} samples "
            f"each by {first.timer}; {clocks}\n",
            highlight=False,
        )
    for label in dict.fromkeys(t.ptxas for t in session.timings if t.ptxas):
        console.print(f"  assembled by {label}", markup=False, highlight=False, soft_wrap=True)
    for note in (*session.notes, *dict.fromkeys(n for t in session.timings for n in t.notes)):
        console.print(f"  note: {note}", markup=False, highlight=False, soft_wrap=True)


def _row(t: Timing, first: Timing) -> tuple[str, ...]:
    from ptxdiff.records.compare import change_of

    beside = ""
    if t is not first:
        ratio = t.beside(first)
        beside = f"{ratio.verdict} {change_of(ratio)}"
    return (
        t.key.variant,
        f"{1e6 * t.median:.2f} µs",
        f"{1e6 * t.low:.2f} to {1e6 * t.high:.2f}",
        f"{t.bytes / t.median / 1e12:.2f} TB/s",
        f"{t.elements / t.median / 1e9:.0f} G/s",
        f"{100 * t.copy / t.median:.1f}%",
        beside,
    )
