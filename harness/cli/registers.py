"""The output of `ptxdiff speed` for variants timed in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from ptxdiff.model.load import LoadedCase
    from ptxdiff.records import InRegisters


def time_case(console: Console, loaded: LoadedCase, target: str, variants: Sequence[str]) -> bool:
    """Time a case's variants in registers on the GPU here, and print the times. Returns whether any was timed."""
    from ptxdiff.processes.child import DeviceFault
    from ptxdiff.timing import CannotTime
    from ptxdiff.timing.inregisters import time_in_registers

    try:
        found = time_in_registers(loaded, target, variants)
    except (CannotTime, DeviceFault, RuntimeError) as error:
        console.print(f"{loaded.name}: {error}", markup=False, highlight=False, soft_wrap=True)
        return False
    _print(console, loaded.name, target, [t for t in found if not t.words])
    for t in found:
        if t.words:
            words = f"  note: {t.key.variant}, {t.mode}: {t.words}"
            console.print(words, markup=False, highlight=False, soft_wrap=True)
    return any(not t.words for t in found)


def _print(console: Console, name: str, target: str, found: Sequence[InRegisters]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ptxdiff.records.inregisters import UNITS, pays_lines

    for mode, unit in UNITS.items():
        group = [t for t in found if t.mode == mode]
        if not group:
            continue
        words = f"{unit}, in a dependent chain" if mode == "latency" else unit
        table = Table(title=Text(f"{name}, in registers on {target}: {words}"), title_justify="left", box=None)
        for heading in ("", unit, "95% interval", "beside the first", "instructions"):
            table.add_column(heading, justify="right" if heading in (unit, "95% interval") else "left")
        for t in group:
            table.add_row(*_row(t, group[0]))
        console.print(table, markup=False)
        noise, samples = 100 * group[0].noise, len(group[0].samples)
        console.print(f"A/A {noise:.2f}%; {samples} samples each, by the SM's clock", highlight=False)
    for line in pays_lines(found):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    console.print("")


def _row(t: InRegisters, first: InRegisters) -> tuple[str, ...]:
    from ptxdiff.records.compare import change_of

    beside = ""
    if t is not first:
        compared = t.beside(first)
        beside = f"{compared.verdict} {change_of(compared)}"
    opcodes = ", ".join(f"{count:g} {opcode}" for opcode, count in t.opcodes.items())
    return t.key.variant, f"{t.value:.3f}", "{:.3f} to {:.3f}".format(*t.interval), beside, opcodes
