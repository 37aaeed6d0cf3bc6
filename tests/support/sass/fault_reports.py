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
    "saturated sum of a sum and zero": """
A sum wraps, and `add.sat.s32` adds 0 to it, which changes nothing. The optimised code drops the 0 and saturates the
first sum instead: 0x3fffffff + 0x7fffffff becomes 0x7fffffff, where the ISA gives 0xbffffffe. The first sum is
`add.u32` of a result of `mul.hi.s32`, or `mad.hi.s32`; for sm_120a `add.s32` and `sub.s32` of any two words do it,
too. After `mad.lo.s32`, and with `sub.sat.s32` of 0 after `add.s32`, the code is right. The CPU gives wrong words for
this program with each release from 12.8 to 13.5 for sm_80, sm_90a, sm_100a and sm_120a; the other forms ran with
13.5.37 alone.
""",
    "carry of a sum of a sum": """
`add.cc.u32` adds b to a + b, which wraps, and `addc.u32` takes its carry. The optimised code makes one `LEA RZ, P, b,
a, 0x1` of both sums, so the carry is that of a and the word 2b. For a = 0xe00000e0 and b = 0x37000007 the first sum
is 0x170000e7, and b added to it carries nothing; 2b = 0x6e00000e added to a does. a is %r28, b is %r24, the sums are
%r31 and %r35, and %r36 takes the carry. The program is as the fuzzer left it: in the shorter ones that were tried
ptxas writes `IADD3` of the first sum, which is right.
""",
    "exclusive or of cnot and set": """
`cnot.b32` gives 1 or 0, and `set.lt.u32.u32` all bits or none. The optimised code has both as masks of all bits, takes
the exclusive or of the masks, and negates the result once. That is right where `set` gives 0. Where it gives all bits,
1 becomes 0 and 0 becomes 1, and by the ISA they become 0xfffffffe and 0xffffffff. An H200 gives these wrong words with
13.5.37 at -O1 and -O3. The CPU gives them with each release from 12.8 to 13.5 for sm_90a, and with 13.5.37 for sm_80,
sm_89, sm_100a and sm_120a.
""",
    "negated sum with a carry": """
`subc.u64` takes b and a borrow from a, `sub.u64` takes the result from 0, and `addc.u64` adds a carry to that. The
optimised code makes one sum of all: `IADD3.X R8, P0, P1, R8, RZ, R13, P1, P0`, where R8 is -a, R13 is -b, P1 the carry
of `add.cc.u64`, and P0 that of a + ~b + 1, which is 1 where `sub.cc.u64` borrows nothing. The difference is a + ~b +
P0, so its negation is -a + (b + 1) - P0. The optimised code adds -b and +P0: the inversion of b is lost, and the sign
of P0. For a = 5 and b = 3 it gives -5 - 3 + 1 = -7, where the ISA gives -2. Each `subc` and `addc` directly follows the
`sub.cc` or `add.cc` whose flag it reads. The program was cut by hand from one of the fuzzer's.

With `add.cc.u64` and `addc.u64` in the place of the first two, the sign of P0 alone is wrong: where the first sum
carries, the result is too large by 2. The CPU gives wrong words for both programs with each release from 12.8 to 13.5
at -O1, -O2 and -O3 for sm_80, sm_89, sm_90a and sm_100a, and for the first with 13.5.37 for sm_75, sm_86, sm_87,
sm_103a and sm_110a too. For sm_120a (all releases) and sm_121a (13.5.37), whose code adds 64 bits at once
(`IADD.64.X`), it is right. With 13.5.37 at -O3 for sm_80 and sm_90a it is wrong with `sub.cc.u64` and `subc.u64` as the
last two, and right with `neg.s64` in the place of `sub.u64`, with `add.u64` as the last sum, with words of 32 bits,
where the first difference takes no borrow, and where its result is stored too.
""",
}
"""What ptxas does wrong, by the name of the mechanism."""

_HEAD = """# Reports on ptxas 13.5.37

One for each mechanism of the [table](ptxas-faults.md#faults-of-13-5-37-by-mechanism), ready to send to NVIDIA
(developer.nvidia.com/bugs); at the end, [two](#found-by-reading-machine-code) that no run accuses. `python -m
tests.support.sass.fault_reports --ptxas PATH` writes this page from `tests/fuzz/ptxas_faults.json`; `ptxdiff fuzz`
writes the same text for each of its findings, as `report.md`.
"""


BY_READING = """## Found by reading machine code

What follows was read on 2026-11-29 in the machine code of ptxas 12.8.93, 12.9.86, 13.0.88, 13.1.115, 13.2.86, 13.3.73,
13.4.92 and 13.5.37, at each level that is named. Neither a GPU nor the CPU ran it.

### A reduction of tensors that becomes a store

`cp.reduce.async.bulk.tensor` has `.tile` and `.im2col_no_offs` in the ISA (9.7.9.27.1.3), not `.tile::scatter4`. All
eight releases accept it for sm_100a, at levels 0 and 3 (12.9 and later for sm_103a, 13.0 and later for sm_110a, too).
They write `UTMASTG.2D.SCATTER4`, the store that `cp.async.bulk.tensor` with `.tile::scatter4` becomes: bits that
control the schedule apart, the two instructions have the same words (0x00000008040073b5, 0x...08088000). With
`.tile`, the reduction is `UTMAREDG.2D.ADD`. The cubin of 13.5.37 is the same for all of `.add`, `.min`, `.max`,
`.inc`, `.dec`, `.and`, `.or` and `.xor`. For sm_90a and sm_120a each release refuses `.tile::scatter4`. ptxas should
refuse the reduction, or reduce.

```sh
ptxas -O3 --gpu-name=sm_100a program.ptx -o program.cubin
```

```text
.version 8.7
.target sm_100a
.address_size 64

.visible .entry k(.param .u64 map)
{
.shared .align 128 .b8 tile[512];
.reg .b32 %s; .reg .b64 %m;
ld.param.u64 %m, [map];
mov.u32 %s, tile;
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile::scatter4.bulk_group [%m, {0, 1, 2, 3, 4}], [%s];
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%m, {0, 1, 2, 3, 4}], [%s];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
}
```

### szext of two parameters

`szext.clamp.s32` and `szext.clamp.u32` of two parameters of the kernel become the same instruction, so at least one
of them is wrong: the signed one has lost its sign. Its width is read from constant bank 0x1b, in the place of bank 0,
where the parameters are, and not from the place of `b` (0x16c), but from 0x164 (0x168 on sm_75). All eight releases
write that for sm_75, sm_80, sm_86 and sm_89 at levels 1 to 3. At level 0, and for sm_90a, sm_100a and sm_120a, they
load the width into a register and write `SGXT` and `SGXT.U32`.

```sh
ptxas -O3 --gpu-name=sm_80 program.ptx -o wrong.cubin
ptxas -O0 --gpu-name=sm_80 program.ptx -o right.cubin
```

```text
.version 7.8
.target sm_80
.address_size 64

.visible .entry k(.param .u64 p, .param .u32 a, .param .u32 b)
{
.reg .b32 %a, %b, %s, %u; .reg .b64 %o;
ld.param.u64 %o, [p];
ld.param.u32 %a, [a];
ld.param.u32 %b, [b];
szext.clamp.s32 %s, %a, %b;
szext.clamp.u32 %u, %a, %b;
st.global.u32 [%o], %s;
st.global.u32 [%o+4], %u;
ret;
}
```

Machine code of ptxas 13.5.37 -O3:

```text
IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
IMAD.MOV.U32 R7, RZ, RZ, c[0x0][0x168] ;
MOV R2, c[0x0][0x160] ;
IMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x164] ;
ULDC.64 UR4, c[0x0][0x118] ;
SGXT.U32 R5, R7.reuse, c[0x1b][0x164] ;   /* 0x06c0590007057a1a */
SGXT.U32 R7, R7, c[0x1b][0x164] ;         /* 0x06c0590007077a1a */
STG.E [R2.64], R5 ;
STG.E [R2.64+0x4], R7 ;
EXIT ;
```
"""
"""Reports that no run made."""


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
    return "\n".join([*parts, BY_READING])


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ptxas", required=True)
    PAGE.write_text(page(parser.parse_args().ptxas), encoding="utf-8")


if __name__ == "__main__":
    main()
