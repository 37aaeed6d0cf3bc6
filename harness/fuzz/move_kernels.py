"""Kernels that move data in ways that random programs do not: parameters and memory of each width, special registers,
predicates that do not fit into the predicate registers, or that are bits of a word; and one that branches.

They teach machine instructions without a row (`lessons`). Each runs one warp, on words that differ by thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxdiff.conformance import teaching
from ptxdiff.emulator import Buffer, PtxError, load_kernel, run_kernel
from ptxdiff.fuzz.assemblers import Ptxas
from ptxdiff.fuzz.execution import MachineCodeInterpreter
from ptxdiff.model.targets import INTRODUCED, version_number
from ptxdiff.sass.run import run_machine_code
from ptxdiff.sass.text import Unsupported

WARP = 32
WORDS = 8
"""Words of each thread, of the input and of the output."""
SCALARS = (13, 0x8A9B, 0x80000085, 0xFFFFFFF3)
"""The values of the scalar parameter, of which a narrow one has the lowest bits."""
VERSION = "8.1"
WIDTHS = {"u8": "r", "s8": "r", "u16": "h", "s16": "h", "u32": "r", "s32": "r", "u64": "d"}
"""Types of parameters and of memory, and the registers that hold them."""
_TO_WORD = {
    "h": "cvt.u32.u16 %r1, %h1; cvt.s32.s16 %r2, %h1; xor.b32 %r1, %r1, %r2;",
    "r": "",
    "d": "mov.b64 {%r1, %r2}, %d1; mad.lo.u32 %r1, %r2, 5, %r1;",
}
"""What makes a word, in %r1, of the value in the first register of each kind."""
_USES = {
    "stored": "",
    "added": "ld.global.b32 %r3, [%in]; add.u32 %r1, %r1, %r3;",
    "compared": "ld.global.b32 %r3, [%in]; setp.lt.u32 %p1, %r1, %r3; selp.b32 %r1, %r3, %r0, %p1;",
    "counted": "and.b32 %r4, %r1, 7; mov.b32 %r1, %r0; L0: mad.lo.u32 %r1, %r1, 5, %r4; sub.u32 %r4, %r4, 1; "
    "setp.ge.s32 %p1, %r4, 0; @%p1 bra L0;",
    "chosen": "and.b32 %r4, %r1, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra L0; ld.global.b32 %r1, [%in]; bra L1; "
    "L0: ld.global.b32 %r1, [%in+4]; L1: ",
    "nested": "and.b32 %r4, %r1, 3; and.b32 %r5, %r1, 8; mov.b32 %r1, %r0; setp.eq.u32 %p1, %r5, 0; @%p1 bra L2; "
    "L0: and.b32 %r6, %r1, 7; L1: mad.lo.u32 %r1, %r1, %r1, %r6; sub.u32 %r6, %r6, 1; setp.ge.s32 %p1, %r6, 0; "
    "@%p1 bra L1; sub.u32 %r4, %r4, 1; setp.ge.s32 %p1, %r4, 0; @%p1 bra L0; L2: ",
}
_SPECIAL = ("laneid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge", "ntid.x")


@dataclass(frozen=True)
class MoveKernel:
    """A kernel of an input, an output and a scalar. kind: the scalar's type. body: its instructions."""

    name: str
    kind: str
    body: str

    def entry(self, name: str) -> str:
        """The kernel under a name."""
        return f""".visible .entry {name}(.param .u64 in, .param .u64 out, .param .{self.kind} n) .maxntid {WARP}
{{
.reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<4>, %in, %out, %at; .reg .pred %p<16>;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
mov.u32 %r0, %tid.x; mul.wide.u32 %at, %r0, {4 * WORDS};
add.u64 %in, %in, %at; add.u64 %out, %out, %at;
{self.body}
ret;
}}"""

    def values(self, output: NDArray[np.uint32], scalar: int) -> list[Buffer | bytes]:
        """The values of the parameters: an input, the output (a row of WORDS a thread), the scalar's lowest bytes."""
        words = np.random.default_rng(5).integers(0, 1 << 32, (WARP, WORDS), np.uint32)
        narrow = scalar.to_bytes(8, "little")[: int(self.kind[1:]) // 8]
        return [Buffer(words, "in"), Buffer(output, "out"), narrow]


def module(target: str) -> str:
    """The PTX of all kernels, named k0, k1, ..., for a target."""
    version = max(VERSION, INTRODUCED.get(target, VERSION), key=version_number)
    table = ".const .align 16 .b32 table[8] = {0x80000001, 2, 0xFFFF8003, 4, 0x85, 6, 0x8007, 0x88};"
    head = [f".version {version}", f".target {target}", ".address_size 64", table]
    return "\n".join([*head, *(kernel.entry(f"k{k}") for k, kernel in enumerate(kernels()))])


def kernels() -> Iterator[MoveKernel]:
    """All of them."""
    for kind, register in WIDTHS.items():
        own, first = kind[1:], f"%{register}1"
        for use, then in _USES.items():
            body = f"ld.param.{kind} {first}, [n]; {_TO_WORD[register]} {then} st.global.b32 [%out], %r1;"
            yield MoveKernel(f"parameter {kind} {use}", kind, body)
        guarded = f"mov.b{own if register != 'r' else 32} {first}, 0; setp.lt.u32 %p1, %r0, 9; @%p1 ld.param.{kind}"
        body = f"{guarded} {first}, [n]; {_TO_WORD[register]} st.global.b32 [%out], %r1;"
        yield MoveKernel(f"parameter {kind} of some lanes", kind, body)
        for qualifier in (".volatile", ".nc", ""):
            space = f"{qualifier}.global" if qualifier == ".volatile" else f".global{qualifier}"
            store = f"st{space if qualifier != '.nc' else '.global'}"
            body = f"ld{space}.{kind} {first}, [%in]; {_TO_WORD[register]} st.global.b32 [%out], %r1;"
            copied = f"ld{space}.{kind} {first}, [%in+8]; {store}.{kind} [%out+8], {first};"
            yield MoveKernel(f"memory {kind}{qualifier}", kind, f"{body} {copied}")
        yield MoveKernel(f"shared memory {kind}", kind, _shared(kind, first, _TO_WORD[register]))
        # At a word that is no function of the thread alone, sm_75 adds 32 bits to a uniform register.
        place = "ld.param.u64 %d2, [{}]; ld.global.b32 %r4, [%in]; and.b32 %r4, %r4, {};"
        short = "cvt.u64.u32 %at, %r4; add.u64 %d2, %d2, %at;"
        body = f"{place.format('in', '0x3F0')} {short} ld.global.{kind} {first}, [%d2+8]; {_TO_WORD[register]}"
        yield MoveKernel(f"memory {kind} at a word", kind, f"{body} st.global.b32 [%out], %r1;")
        body = (
            f"ld.global.{kind} {first}, [%in+8]; {place.format('out', '16')} shl.b32 %r2, %r0, 5; or.b32 %r4, %r4, %r2;"
        )
        yield MoveKernel(f"memory {kind} stored at a word", kind, f"{body} {short} st.global.{kind} [%d2+8], {first};")
        table = f"mov.u64 %d2, table; and.b32 %r3, %r0, 3; mad.wide.u32 %d2, %r3, 8, %d2; ld.const.{kind} {first}"
        body = f"{table}, [%d2]; {_TO_WORD[register]} st.global.b32 [%out], %r1;"
        yield MoveKernel(f"table {kind} by thread", kind, body)
        fixed = f"ld.const.{kind} {first}, [table+8]; {_TO_WORD[register]} add.u32 %r1, %r1, %r0;"
        yield MoveKernel(f"table {kind}", kind, f"{fixed} st.global.b32 [%out], %r1;")
        scalar = f"{table.replace('%r0', '%r4')}, [%d2]; {_TO_WORD[register]} add.u32 %r1, %r1, %r0;"
        yield MoveKernel(
            f"table {kind} by a scalar", "u32", f"ld.param.u32 %r4, [n]; {scalar} st.global.b32 [%out], %r1;"
        )
        zero = f"ld.const.{kind} {first}, [table]; {_TO_WORD[register]} add.u32 %r1, %r1, %r0;"
        yield MoveKernel(f"first of table {kind}", kind, f"{zero} st.global.b32 [%out], %r1;")
    for name in _SPECIAL:
        body = f"mov.u32 %r1, %{name}; st.global.b32 [%out], %r1;"
        yield MoveKernel(f"special {name}", "u32", body)
        yield MoveKernel(f"special {name} and a word", "u32", f"ld.global.b32 %r3, [%in]; mov.u32 %r1, %{name}; "
                      "xor.b32 %r1, %r1, %r3; st.global.b32 [%out+4], %r1;")  # fmt: skip
    # Programs of the fuzzer, of which sm_75 has none here, store constants: CS2R of zero.
    zeros = "ld.global.v2.u32 {%r2, %r3}, [%in]; st.global.v4.u32 [%out], {0, 0, %r2, %r3};"
    yield MoveKernel("zeros beside words", "u32", f"{zeros} st.global.v2.u64 [%out+16], {{0, 0}};")
    yield MoveKernel("predicates kept over a loop", "u32", _kept_over_a_loop())
    for bit in (0, 8, 16, 24):
        yield MoveKernel(f"predicates of the bits from {bit} on", "u32", _of_bits(bit))
    for side in ("lt", "ge"):
        yield MoveKernel(f"a branch of lanes {side} a scalar, around a loop", "u32", _around_a_loop(side))
    for sides in ("lt lt", "lt ge", "ge ge"):
        yield MoveKernel(f"an end of lanes {sides}", "u32", _end_of_some(*sides.split()))
    for of in ("a scalar", "the thread"):
        yield MoveKernel(f"a table of branches by {of}", "u32", _table_of_branches(of))


def _shared(kind: str, first: str, to_word: str) -> str:
    """A thread reads and writes, in one width, one of the two words of 64 bits that it has in shared memory.

    Which one, a loaded bit says, so ptxas cannot know the value. No barrier is needed: one that orders nothing would
    be taught without a lesson that shows it.
    """
    return (
        f".shared .align 16 .b8 near[{16 * WARP}]; mov.u32 %r5, near; shl.b32 %r6, %r0, 4; add.u32 %r5, %r5, %r6; "
        "ld.global.v2.u64 {%d2, %d3}, [%in]; st.shared.u64 [%r5], %d2; st.shared.u64 [%r5+8], %d3; "
        "ld.global.b32 %r4, [%in+16]; and.b32 %r4, %r4, 8; add.u32 %r4, %r4, %r5; "
        f"ld.shared.{kind} {first}, [%r4]; {to_word} st.global.b32 [%out], %r1; ld.global.{kind} {first}, [%in+24]; "
        f"st.shared.{kind} [%r4], {first}; ld.shared.u64 %d2, [%r5]; ld.shared.u64 %d3, [%r5+8]; "
        "st.global.v2.u64 [%out+16], {%d2, %d3};"
    )


def _kept_over_a_loop() -> str:
    """More predicates than a thread has registers for, each used in a loop; level 3 writes P2R."""
    lines = [f"ld.global.b32 %r7, [%in+{4 * k}]; setp.lt.s32 %p{k}, %r7, {7 * k};" for k in range(WORDS)]
    lines += ["and.b32 %r4, %r7, 15; ld.param.u32 %r1, [n]; L0: mad.lo.u32 %r1, %r1, 5, %r4;"]
    lines += [f"@%p{k} add.u32 %r1, %r1, {k * k + 3}; mul.lo.u32 %r1, %r1, 77;" for k in range(WORDS)]
    lines += ["sub.u32 %r4, %r4, 1; setp.ge.s32 %p15, %r4, 0; @%p15 bra L0; st.global.b32 [%out], %r1;"]
    return " ".join(lines)


def _of_bits(first: int) -> str:
    """Seven bits of a word, each of which decides something; level 3 writes R2P of the byte."""
    lines = ["ld.global.b32 %r2, [%in]; ld.param.u32 %r1, [n];"]
    for k in range(7):
        lines.append(f"and.b32 %r3, %r2, {1 << first + k}; setp.ne.u32 %p{k}, %r3, 0;")
        lines.append(f"@%p{k} xor.b32 %r1, %r1, {0x9E3779B9 * (k + 1) & 0xFFFFFFFF};")
        lines.append(f"shf.l.wrap.b32 %r1, %r1, %r1, {k + 3};")
    return " ".join([*lines, "st.global.b32 [%out], %r1;"])


def _around_a_loop(side: str) -> str:
    """A branch that all lanes, some or none take, and a ballot of all behind it; level 3 writes BRA.U before it."""
    return f""".shared .align 8 .b8 own[{8 * WARP}]; .reg .b32 %own, %x<8>; .reg .b64 %e<4>;
mov.u32 %own, own; mad.lo.u32 %own, %r0, 8, %own; ld.param.u32 %r7, [n];
ld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%in]; cvt.u16.u32 %h1, %r3; mov.b64 %e1, {{%r2, %r4}};
setp.{side}.u32 %p1, %r0, %r7; add.cc.u64 %e2, %e1, %e1; addc.u64 %e3, %e1, %e1; mov.b32 %x1, 0; and.b32 %x2, %r4, 7;
L0: mad.lo.u16 %h2, %h1, %h1, %h1; mov.b32 %x3, 0; and.b32 %x4, 4, 7;
L1: st.shared.v2.u32 [%own], {{%r4, %r5}}; add.u32 %x3, %x3, 1; setp.lt.u32 %p2, %x3, %x4; @%p2 bra L1;
mul.wide.s16 %r6, %h1, %h2; add.u32 %x1, %x1, 1; setp.lt.u32 %p3, %x1, %x2; @%p3 bra L0;
shfl.sync.bfly.b32 %x6, %r5, 11, 0x1f, 0xFFFFFFFF; @!%p1 bra L2; mov.b32 %x3, 0; and.b32 %x4, %r6, 7;
L3: st.shared.u32 [%own], %x6; add.u32 %x3, %x3, 1; setp.lt.u32 %p4, %x3, %x4; @%p4 bra L3;
L2: vote.sync.ballot.b32 %x7, %p1, 0xFFFFFFFF; st.shared.u64 [%own], %e2; ld.shared.v2.u32 {{%x1, %x2}}, [%own];
mov.b64 {{%x3, %x4}}, %e3; xor.b32 %x3, %x3, %x4; st.global.v4.u32 [%out], {{%x2, %x3, %x7, %r5}};"""


def _end_of_some(one: str, other: str) -> str:
    """Lanes end where two comparisons hold, each of which decides something else, too; level 3 writes EXIT P0."""
    return f"""ld.param.u32 %r7, [n]; ld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%in]; setp.{one}.u32 %p1, %r2, %r3;
setp.{other}.u32 %p2, %r4, %r7; st.global.b32 [%out+4], %r4; and.pred %p3, %p1, %p2; @%p3 exit;
@%p1 add.u32 %r5, %r5, %r2; @%p2 xor.b32 %r5, %r5, %r3; st.global.b32 [%out], %r5;"""


def _table_of_branches(of: str) -> str:
    """A jump to one of eight places. By a scalar, level 3 writes BRXU from Blackwell on."""
    places = [f"L{k}" for k in range(8)]
    ways = [
        f"L{k}: mad.lo.u32 %r1, %r1, {2 * k + 3}, %r0; shf.l.wrap.b32 %r1, %r1, %r1, {k + 1}; bra L8;" for k in range(8)
    ]
    chosen = "ld.param.u32 %r2, [n];" if of == "a scalar" else "mov.u32 %r2, %r0;"
    return f"""ld.global.b32 %r1, [%in]; {chosen} and.b32 %r2, %r2, 7; places: .branchtargets {", ".join(places)};
brx.idx %r2, places; {" ".join(ways)} L8: st.global.b32 [%out], %r1;"""


def taught(target: str, by: Ptxas, lessons: teaching.MoveLessons) -> list[str]:
    """Add the lessons of all kernels by an assembler. Returns what differed, in words."""
    text = module(target)
    done = by.assemble(text, target)
    (read,) = MachineCodeInterpreter(target).read([done.cubin]) if done.ended == "assembled" else [None]
    if read is None or isinstance(read, Unsupported):
        return [f"{target} kernels that move data, by {by.label}: {done.words[:200] or read}"]
    differing = []
    for number, kernel in enumerate(kernels()):
        loaded = load_kernel(text, f"k{number}")
        for scalar in SCALARS:
            # What a store should leave as it is shows where it writes too much.
            right = np.random.default_rng(7).integers(0, 1 << 32, (WARP, WORDS), np.uint32)
            given = right.copy()
            run_kernel(loaded, kernel.values(right, scalar), (1,), num_threads=WARP)
            try:
                ran = run_machine_code(read[f"k{number}"], kernel.values(given, scalar), (1,), WARP)
            except Unsupported:  # it needs an instruction that is not known
                continue
            except PtxError as error:
                differing.append(f"{target} {kernel.name} of {scalar:#x} by {by.label}: {error.message}")
                continue
            same = np.array_equal(given, right)
            if not same:
                differing.append(f"{target} {kernel.name} of {scalar:#x} by {by.label}")
            lessons.note(ran, f"{kernel.name} {scalar:#x} -O{by.choice.level}", agreed=same)
    return differing
