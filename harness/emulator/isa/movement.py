"""Moves, branches, and instructions without effect on values (ISA 9.7.9 data movement, 9.7.12 control flow)."""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.emulator.isa.facts import ARITHMETIC, Facts
from ptxdiff.emulator.isa.registry import operation

_SMALL = ".b16 .b32 .u16 .u32 .s16 .s32 .f32"
_LARGE = ".b64 .u64 .s64 .f64"

operation("mov.type", "mov", section="9.7.9.3", type=f".pred {_SMALL} {_LARGE}", facts=ARITHMETIC)
operation("mov.type", "mov", section="9.7.9.4", type=".b128", requires=70, facts=ARITHMETIC)
operation("mov.vec.type", "mov_vector", section="9.7.9.3", vec=".v2 .v4", type=_SMALL, facts=ARITHMETIC)
operation("mov.vec.type", "mov_vector", section="9.7.9.3", vec=".v2", type=_LARGE, facts=ARITHMETIC)
_JUMP = Facts(effects=False, destinations=0, control="branch", computes=False)
_END = Facts(destinations=0, control="end", computes=False)
_TIMING = Facts(destinations=0, computes=False)
operation("bra{.uni}", "bra", section="9.7.12.3", facts=_JUMP)
operation("brx.idx{.uni}", "brx", section="9.7.12.4", facts=Facts(effects=False, destinations=0, control="table"))
operation("ret{.uni}", "exit", section="9.7.12.7", facts=replace(_END, effects=False))
operation("exit", "exit", section="9.7.12.8", facts=_END)
operation("nanosleep.u32", "nothing", section="9.7.19.7", requires=70, facts=_TIMING)
operation("pmevent{.mask}", "nothing", section="9.7.19.5", facts=_TIMING)
