"""The reports on the newest ptxas: a page with the smallest program of each mechanism of `ptxas_faults.json`.

`python -m tests.support.sass.fault_reports --ptxas PATH` writes it. PATH is the release that the reports are about; it
makes the machine code that they show.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.campaign import finding_of
from ptxdiff.fuzz.files import report, sass
from ptxdiff.fuzz.judge import PtxasFault

FAULTS = Path(__file__).parents[2] / "fuzz" / "ptxas_faults.json"
PAGE = Path(__file__).parents[3] / "docs" / "results" / "ptxas-reports.md"
RELEASE = "13.5"

MECHANISMS: Mapping[str, str] = {
    "shift by a result of cnot": """
The amount of a 16-bit shift is the result of `cnot.b32`. The optimised code has no instruction for `cnot`: the shift
takes its amount from a register that nothing wrote (`SHF.L.U32 R0, R0, R1`, where R1 is the stack pointer, or a
register with an older value). By the ISA, `cnot` gives 1 or 0, and a shift by 0 gives its operand.
""",
    "shift by a converted float": """
The amount of `shr.s16` is the result of a conversion of float32 to u32. The optimised code converts to a signed
16-bit integer instead (`F2I.S16`), so a negative float, which is 0 as u32, becomes a negative amount, and all bits
are shifted out.
""",
    "shift by a signed field": """
The amount of a 16-bit shift is the result of `bfe.s32`. The ISA takes the amount as an unsigned word and clamps it to
the width. The optimised code clamps it as a signed word to 0 and 0xffff, so the shift by 0xffffffff is a shift by 0
instead of one by 16.
""",
    "saturation of a converted NaN": """
`cvt.rzi.s64.f32` and then `cvt.sat.s32.s64` become one conversion to a signed 32-bit integer, which gives 0 for NaN.
By PTX ISA 9.0 (cvt), NaN becomes the least integer where the destination is s64, and saturates to the least s32,
0x80000000. The text up to 8.7 says that NaN becomes 0 in every integer. By it -O3 is right, and -O0 is wrong: the
levels differ.
""",
    "packed conversion of an unsigned word": """
A conversion of float32 to u32 and then `cvt.pack.sat.s8.s32` become one packed conversion of the float to signed
bytes (`F2IP.S8.F32`). A negative float, which is 0 as u32, becomes -128. A float of 2^31, which is a negative s32
after the first conversion, becomes 127 instead of -128.
""",
    "rounding after minima and maxima": """
Two `min.ftz.f32` or `max.ftz.f32` of a value with itself before `cvt.rzi.s32.f32` are removed, and with them the
rounding of the conversion: `F2I.FTZ` rounds to nearest instead of `F2I.FTZ.TRUNC`. 1.5 becomes 2.
""",
    "two conversions for one": """
float32 to u32, to float32, and to u32 again become one conversion, with the rounding of the last one. The first
rounding is lost: 1.4 rounded to nearest is 1, and 1 rounded up is 1; the optimised code gives 2. So is the rounding
in the middle: 0xffffffff rounded to float32 towards zero is 0xffffff00. With s32 the code is right.
""",
    "sign of a shifted word": """
`cvt.s64.u32` extends with zeros. Where `shl.b64` by a constant follows, the optimised code shifts the upper half as
if it had extended with the sign (`SHF.R.S32.HI`).
""",
    "borrow after a high product": """
`sub.cc.u32` subtracts from the result of `mul.hi`. The optimised code adds the negated subtrahend in the
multiplication (`IMAD.HI` with a carry out). If the subtrahend is 0, its negation is 0 and there is no carry, which
`subc` takes as a borrow: the difference of `subc` is smaller by 1.
""",
    "saturated sum of products": """
`add.sat.s32` of two products of one register with constants becomes one product with the sum of the constants. It
does not saturate.
""",
    "sign of a negated word": """
`x - (x + x)` becomes `-x`, and the test of `slct` whether that is at least 0 becomes a test whether x is at most 0.
For x = 0x80000000 the ISA's difference wraps to 0x80000000, which is negative; the test says that it is not. All
instructions may be unsigned (`sub.cc.u32`), so nothing excuses an overflow.
""",
    "merging conversion": """
Two floats become two bytes (`cvt.rn.satfinite.e4m3x2`, also e5m2x2), and `mov.b32 {h, g}` joins them with the lower
half g of a word, which `cvt.u16.u32` took. The optimised code keeps g in the register of that word and lets the
conversion merge into it (`F2FP ... MERGE_C`). The word itself is needed later, and is overwritten.
""",
    "upper half of a narrow load": """
`mov.b32 {low, high}` splits a word that `ld` extended from 8 or 16 bits. The optimised code reads the lower half as
`high`: a shift by 16 is missing.
""",
    "saturated difference of a difference": """
`sub.sat.s32` subtracts b from a - b. The optimised code multiplies b by -2 and adds a with saturation (`IMAD` and
`VIADD.S32.ISAT`). The product wraps, so a different number is added: for b = 0x4f000000 it is 0x62000000, which is
positive. The releases 12.8 to 13.5 do it for sm_120a, and 13.5 for sm_121a. Without `VIADD`, as on sm_80, sm_90a and
sm_100a, the code is right. It is the same with sums: for sm_120a, `add.sat.s32` of a + b and b becomes a shift of b by
1, which wraps, and a saturated sum with a. So it is where `vabsdiff4` adds b, and `add.sat.s32` adds b again.
""",
    "saturation of a result of cnot": """
The result of `cnot.b32` is 0 or 1, and `cvt.sat.s16.u32` keeps it. The optimised code has the result as a mask of all
bits, compares this mask as an unsigned word with 0x8000, and takes 0xffff8000 instead of the negated mask: for 0 the
result is 0x8000. With `cvt.sat.s8.u32` it is 0xff80 in 16 bits, and with `cvt.sat.u16.u32` always 0. An H100 gives
other words than the ISA's, too.
""",
    "conversions of a result of set": """
`set.lt.u32` gives 0xffffffff or 0. As u32 that is 4294967295, whose float saturates to 0x7fffffff in
`cvt.rzi.s32.f64`. The optimised code drops both conversions and stores 0xffffffff. So it does with float32, and with
`cvt.rzi.s16`. `cvt.rn.f32.s32` and then `cvt.rzi.u32.f32` of the result, which are -1.0 and 0, become 0xffffffff
too. With s64 as the last type the code is right, and with `selp` or `cnot` in the place of `set`. With float32 and
s32 the CPU gives wrong words with each release from 12.8 to 13.5 for sm_80, sm_90a, sm_100a and sm_120a.
""",
    "saturation of a negated word": """
A word times -1 (`mul.lo` by 0xffffffff, or `neg.s32`) goes to `cvt.sat.u32.s32`. The optimised code negates the word,
and takes 0 if that is above 0x80000000 as an unsigned number. 0x80000000 is its own negation, and it is negative, so by
the ISA it becomes 0. The optimised code keeps it. With `cvt.sat.u16.s32` it gives 0xffff. With `sub.u32` from 0 in the
place of the product the code is right. As in "sign of a negated word", a negation is taken as never 0x80000000. The CPU
gives wrong words with each release from 12.8 to 13.5 for sm_80, sm_90a, sm_100a and sm_120a.
""",
}
"""What ptxas does wrong, by the name of the mechanism."""

_HEAD = """# Reports on ptxas 13.5.37

One for each mechanism of the [table](ptxas-faults.md#faults-of-13-5-37-by-mechanism), ready to send to NVIDIA
(developer.nvidia.com/bugs). `python -m tests.support.sass.fault_reports --ptxas PATH` writes this page from
`tests/fuzz/ptxas_faults.json`; `ptxdiff fuzz` writes the same text for each of its findings, as `report.md`.
"""


def finding(fault: Mapping[str, Any]) -> PtxasFault:
    """A fault of the list as a finding."""
    fields = {k: v for k, v in fault.items() if k not in ("mechanism", "ran_on")}
    size = len(fault["skeleton"].split())
    return finding_of({**fields, "kind": "wrong", "size": size, "interpreted": fault.get("ran_on") == "CPU"})


def target_of(fault: Mapping[str, Any]) -> str:
    """The target that the text of a fault names."""
    found = re.search(r"^\.target (\w+)", fault["text"], re.M)
    assert found
    return found[1]


def smallest(faults: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The smallest program of each mechanism of the newest release, in the order of `MECHANISMS`."""
    live = [f for f in faults if f"ptxas {RELEASE} -O3" in f["assemblers"]]
    return {m: min((f for f in live if f["mechanism"] == m), key=lambda f: finding(f).size) for m in MECHANISMS}


def page(path: str) -> str:
    """The page. path: of the ptxas."""
    faulty, right = assembler(path, 3), assembler(path, 0)
    parts = [_HEAD]
    for name, fault in smallest(json.loads(FAULTS.read_text(encoding="utf-8"))).items():
        one = replace(finding(fault), assemblers=(faulty.label,), right=(right.label,))
        codes = {faulty.label: sass(one, faulty, target_of(fault))}
        text = report(one, codes, MECHANISMS[name].strip(), "###")
        parts.append(f"## {name.capitalize()}\n\n{text}\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ptxas", required=True)
    PAGE.write_text(page(parser.parse_args().ptxas), encoding="utf-8")


if __name__ == "__main__":
    main()
