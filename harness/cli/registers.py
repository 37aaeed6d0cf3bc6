"""What `ptxdiff speed --in-registers` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from harness.model.load import LoadedCase
    from harness.timing.inregisters import RegisterTiming, RegisterTimings


def time_case(console: Console, loaded: LoadedCase, target: str, variants: Sequence[str]) -> bool:
    """Time a case's variants in registers on the GPU here, and print; whether that could be done."""
    from harness.processes.child import DeviceFault
    from harness.timing import CannotTime
    from harness.timing.inregisters import time_in_registers

    try:
        found, notes = time_in_registers(loaded, target, variants)
    except (CannotTime, DeviceFault, RuntimeError) as error:
        console.print(f"{loaded.name}: {error}", markup=False, highlight=False, soft_wrap=True)
        return False
    _print(console, loaded, target, found)
    for note in notes:
        console.print(f"  note: {note}", markup=False, highlight=False, soft_wrap=True)
    return True


def _print(console: Console, loaded: LoadedCase, target: str, found: RegisterTimings) -> None:
    from rich.table import Table
    from rich.text import Text

    for mode, unit in (
        ("throughput", "results a clock and SM"),
        ("latency", "clocks an application, in a dependent chain"),
    ):
        group = [m for m in found.measured if m.mode == mode]
        if not group:
            continue
        title = f"{loaded.name}, in registers on {target}, {found.device}: {unit}"
        table = Table(title=Text(title), title_justify="left", box=None)
        for heading in ("", unit.partition(",")[0], "95% interval", "beside the first", "instructions"):
            table.add_column(
                heading,
                justify="right" if "interval" in heading or heading.startswith(("results", "clocks")) else "left",
            )
        for m in group:
            table.add_row(*_row(m, group[0]))
        console.print(table, markup=False)
        noise, samples = 100 * group[0].noise, len(group[0].samples)
        console.print(f"A/A {noise:.2f}%; {samples} samples each, by the SM's clock", highlight=False)
    for line in pays(loaded, found):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    console.print("")


def _row(m: RegisterTiming, first: RegisterTiming) -> tuple[str, ...]:
    from harness.records.compare import change_of

    beside = ""
    if m is not first:
        compared = m.beside(first)
        beside = f"{compared.verdict} {change_of(compared)}"
    opcodes = ", ".join(f"{count:g} {opcode}" for opcode, count in m.opcodes.items())
    return m.name, f"{m.value:.3f}", f"{m.low:.3f} to {m.high:.3f}", beside, opcodes


def pays(loaded: LoadedCase, found: RegisterTimings) -> list[str]:
    """From which arithmetic intensity on a variant that is faster than another shortens a kernel, in words."""
    from harness.model.arguments import format_of
    from harness.timing.inregisters import ALONE, pays_from

    case = loaded.case
    size = sum(format_of(a).unit_bits for a in (*case.inputs.values(), *case.outputs.values())) / 8
    group = [m for m in found.measured if m.mode == "throughput" and m.name != ALONE]
    lines = [f"memory: {found.bytes_per_clock:.2f} bytes a clock and SM at {found.megahertz:.0f} MHz, by a copy"]
    for one in group[1:]:
        verdict = one.beside(group[0]).verdict
        if verdict not in ("faster", "slower"):
            lines.append(f"{one.name} beside {group[0].name}: {verdict}; nothing to choose between")
            continue
        faster, slower = (one, group[0]) if verdict == "faster" else (group[0], one)
        intensity = pays_from(slower.value, found.bytes_per_clock)
        lines.append(
            f"{faster.name} pays over {slower.name} from {intensity:.2f} results a byte of memory traffic on: "
            f"{intensity * size:.1f} for each element of {size:g} bytes read and written"
        )
    return lines
