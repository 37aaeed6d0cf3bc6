"""Random machine code whose registers and shared memory are partly unwritten, to test when one run is enough."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from ptxdiff.emulator import Buffer, PtxError
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.machine import SCHEDULES
from ptxdiff.sass.run import SEEDS, _difference, placed
from tests.support.sass.assembly import written

BYTES_EACH = 32
"""Bytes of the output of each thread."""
_START = f"""
S2R R0, SR_TID.X
MOV R1, {BYTES_EACH:#x}
IMAD.WIDE R2, R0, R1, c[0x0][0x160]
"""
_DATA = tuple(range(8, 20))
"""Registers of data. R4 to R7 are addresses."""


def random_code(seed: int) -> str:
    """Instructions, one a line."""
    return _Writer(random.Random(seed)).text()


class _Writer:
    def __init__(self, draw: random.Random) -> None:
        self.draw, self.lines, self.labels = draw, [], 0
        self.makers: list[Callable[[], str]] = [
            self._moved, self._logic, self._permuted, self._shifted, self._selected, self._halves, self._packed,
            self._sum, self._wide, self._predicate, self._shared_store, self._shared_load, self._shared_load,
            self._exchanged, self._stored,
        ]  # fmt: skip

    def text(self) -> str:
        draw = self.draw
        known = draw.sample(_DATA, draw.randint(6, 11))
        for register in known:
            self.lines.append(f"MOV R{register}, {draw.getrandbits(32):#x}")
            if draw.random() < 0.5:
                self.lines.append(f"IADD3 R{register}, R{register}, R0, RZ")
        self.lines.append(f"ISETP.GE.AND P0, PT, R0, {draw.choice((1, 7, 16, 32, 40)):#x}, PT")
        self.lines.append(f"LOP3.LUT R4, R0, {draw.choice((1, 3, 8)):#x}, RZ, 0xc0, !PT")
        self.lines.append("ISETP.NE.AND P1, PT, R4, RZ, PT")
        for _ in range(draw.randint(4, 24)):
            if draw.random() < 0.06:
                self._branch()
            else:
                self.lines.append(self._guard() + draw.choice(self.makers)())
                if draw.random() < 0.1:
                    self.lines.append("BAR.SYNC 0x0")
        return _START + "\n".join([*self.lines, self._stored(), "EXIT"])

    def _branch(self) -> None:
        self.labels += 1
        here = self.labels
        inner = [self._guard(0.1) + self.draw.choice(self.makers)() for _ in range(self.draw.randint(1, 4))]
        self.lines += [f"BSSY B0, `(.L_x_{here})", f"@{self._condition()} BRA `(.L_x_{here})", *inner, f".L_x_{here}:",
                       "BSYNC B0"]  # fmt: skip

    def _condition(self) -> str:
        return self.draw.choice(("P0", "!P0", "P1", "!P1", "P2"))

    def _guard(self, often: float = 0.25) -> str:
        return f"@{self._condition()} " if self.draw.random() < often else ""

    def _r(self) -> str:
        return f"R{self.draw.choice(_DATA)}"

    def _source(self) -> str:
        return self.draw.choice((self._r(), self._r(), "RZ", "R0"))

    def _mask(self) -> str:
        return f"{self.draw.choice((0xFF, 0xFFFF, 0xFFFF0000, 0xFF00FF, 0x1, self.draw.getrandbits(32))):#x}"

    def _moved(self) -> str:
        return f"MOV {self._r()}, {self.draw.choice((self._source(), self._mask()))}"

    def _logic(self) -> str:
        b = self.draw.choice((self._source(), self._mask()))
        table = self.draw.choice((0xC0, 0xFC, 0x3C, 0xEA, 0xCA, 0xB8, self.draw.getrandbits(8)))
        return f"LOP3.LUT {self._r()}, {self._source()}, {b}, {self._source()}, {table:#x}, !PT"

    def _permuted(self) -> str:
        selector = self.draw.choice((0x5410, 0x7632, 0x7610, 0x4440, 0xBA98, self.draw.getrandbits(16)))
        b = self.draw.choice((f"{selector:#x}",) * 4 + (self._source(),))
        return f"PRMT {self._r()}, {self._source()}, {b}, {self._source()}"

    def _shifted(self) -> str:
        form = self.draw.choice(("SHF.L.U32", "SHF.R.U32.HI", "SHF.R.S32.HI", "SHF.L.U64.HI", "SHF.R.U64"))
        by = self.draw.choice(("0x8", "0x10", "0x18", f"{self.draw.randint(0, 31):#x}", self._source()))
        return f"{form} {self._r()}, {self._source()}, {by}, {self._source()}"

    def _selected(self) -> str:
        return f"SEL {self._r()}, {self._source()}, {self._source()}, {self._condition()}"

    def _half(self) -> str:
        return self._r() + self.draw.choice(("", "", ".H0_H0", ".H1_H1"))

    def _halves(self) -> str:
        form, count = self.draw.choice((("HADD2", 2), ("HMUL2.BF16_V2", 2), ("HFMA2", 3), ("HMNMX2", 2)))
        more = f", {self._condition()}" if form == "HMNMX2" else ""
        return f"{form} {self._r()}, {', '.join(self._half() for _ in range(count))}{more}"

    def _packed(self) -> str:
        form = self.draw.choice(("F2FP.PACK_AB", "F2FP.BF16.PACK_AB"))
        return f"{form} {self._r()}, {self._source()}, {self._source()}"

    def _sum(self) -> str:
        return f"IADD3 {self._r()}, {self._source()}, {self._source()}, {self._source()}"

    def _wide(self) -> str:
        return f"IMAD.WIDE.U32 R{self.draw.choice(_DATA) & ~1}, {self._source()}, {self._source()}, RZ"

    def _predicate(self) -> str:
        place = self.draw.choice(("P1", "P2", "P3"))
        return f"ISETP.{self.draw.choice(('LT', 'EQ', 'GE'))}.AND {place}, PT, {self._r()}, {self._source()}, PT"

    def _access(self) -> tuple[str, int, int]:
        """A size, by name and in registers, and bytes."""
        return self.draw.choice((
            (".U8", 1, 1), (".S8", 1, 1), (".U16", 1, 2), (".S16", 1, 2), ("", 1, 4), ("", 1, 4), (".64", 2, 8),
            (".128", 4, 16),
        ))  # fmt: skip

    def _place(self, size: int) -> str:
        """An address in shared memory: of the thread's own 16 bytes, mostly, or of another's."""
        offset = self.draw.randrange(0, 16, size) if size < 16 else 0
        return f"[R0.X16+{offset + self.draw.choice((0,) * 9 + (16,)):#x}]"

    def _data(self, registers: int) -> str:
        return f"R{self.draw.choice(_DATA) // registers * registers}"

    def _shared_store(self) -> str:
        name, registers, size = self._access()
        return f"STS{name.replace('S', 'U')} {self._place(size)}, {self._data(registers)}"

    def _shared_load(self) -> str:
        name, registers, size = self._access()
        return f"LDS{name} {self._data(registers)}, {self._place(size)}"

    def _exchanged(self) -> str:
        mode, bits = self.draw.choice((("BFLY", "0x1f"), ("IDX", "0x1f"), ("UP", "0x0"), ("DOWN", "0x1f")))
        by = self.draw.choice(("0x1", "0x2", "0x10", "R0"))
        return f"SHFL.{mode} {self.draw.choice(('PT', 'P3'))}, {self._r()}, {self._r()}, {by}, {bits}"

    def _stored(self) -> str:
        name, registers, size = self.draw.choice(
            (("", 1, 4), (".U16", 1, 2), (".U16", 1, 2), (".U8", 1, 1), (".64", 2, 8))
        )
        return f"STG.E{name} [R2.64+{self.draw.randrange(0, BYTES_EACH, size):#x}], {self._data(registers)}"


def contradiction(text: str, threads: int = 64) -> tuple[int, str]:
    """How many runs a program needs by the rule, and where another run differs though one was to be enough.

    0 and "" if the first run has a fault. Else all schedules run with all fillings.
    """
    code = MachineCode("kernel", "sm_80", written(text), (Parameter(0, 8),), 0x160, {}, 0, 0)
    out = Buffer(np.zeros(threads * BYTES_EACH, np.uint8), "out", defined=False)
    kernel = placed(code, [out], (1, 1, 1), threads, 16 * threads + 32, None, None)
    try:
        launch, first = kernel.run(SCHEDULES[0], SEEDS[0])
    except PtxError:
        return 0, ""
    if launch.guessed or launch.met:
        return 3, ""
    for schedule in SCHEDULES:
        for seed in SEEDS:
            try:
                again = kernel.run(schedule, seed)[1]
            except PtxError as error:
                return 1, f"{schedule}, {seed:#x}: {error}"
            if difference := _difference(first, again, kernel.buffers):
                return 1, f"{schedule}, {seed:#x}: {difference}"
    return 1, ""
