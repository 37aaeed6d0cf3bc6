"""The instruction names and modifiers that ptxas knows outside arithmetic, asked of ptxas itself.

    python tests/support/lint/ptxas_modifiers.py --write

writes `harness/lint/ptxas_modifiers.txt`: the words that ptxas knows as a modifier of any instruction (`ld.globl` is
an "unknown modifier"), the instruction names as ptxas has them in its errors, and what it says of each name in
contexts. Candidates for words are the modifiers in the emulator's table, the types, and `WORDS`; names are those of
the table and of `SEEDS`, forms that are not in it. A context is a legal spelling with operands. A name takes a word
if a legal spelling has it, or if ptxas says nothing against modifiers in some context with the word more, or in the
place of another. What it says of operands or of the target is no word against modifiers. In the same way the file
says which modifiers an instruction must have, how many of one kind, and which may stand within a name. ptxas is the
one in Triton's wheel; it reads some 500,000 lines, which takes about two minutes of processor time.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from pathlib import Path

import numpy as np

import ptxdiff.emulator.kernel.run  # noqa: F401  the forms of whole kernels
from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import FORMS
from ptxdiff.emulator.isa.registry import REFUSED
from ptxdiff.emulator.text import TYPES
from ptxdiff.lint.ptxas_modifiers import ALWAYS, ANY, COUNTS, DATA, KIND, LATER, NEEDS, OF, number_of
from ptxdiff.triton.targets import tool
from tests.support.emulator.legality_campaign import OF_KERNELS

isa.load()
ASKED = (("ptxas-blackwell", "sm_100a"), ("ptxas", "sm_90a"))
"""Assemblers and targets: a word that any of them knows is a word."""
CRASHING = frozenset(("cc", "scaled::n1::ue8m0"))
"""Modifiers of arithmetic on which ptxas crashes in many other instructions: it is not asked about them."""
OTHERS = (("ptxas-blackwell", "sm_103a"), ("ptxas-blackwell", "sm_120a"))
"""Asked about instructions that the targets of `ASKED` lack."""
UNASKED = frozenset(("call", "bra", "brx", "ret", "exit"))
"""Opcodes whose operands ptxas reads before their modifiers."""

_SEEDS = """
alloca.u32 alloca.u64 stacksave.u64 stackrestore.u64 applypriority.L2::evict_normal discard.L2 istypep.texref
bar.red.and.pred bar.red.popc.u32 barrier.red.and.pred barrier.red.popc.u32 barrier.cluster.arrive
barrier.cluster.wait cp.async.mbarrier.arrive.b64
cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group
cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes
cp.async.bulk.prefetch.tensor.2d.L2.global cp.async.bulk.prefetch.tensor.3d.L2.global.im2col
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group
cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32
st.async.release.gpu.global.u32 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
red.async.release.gpu.global.add.u32 st.bulk.weak.shared::cta fence.proxy.tensormap::generic.release.cta
fence.proxy.tensormap::generic.acquire.cta fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster
fence.acquire.sync_restrict::shared::cluster.cluster fence.mbarrier_init.release.cluster
ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64
stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 mbarrier.complete_tx.b64 mbarrier.pending_count.b64
mbarrier.arrive_drop.b64 mbarrier.arrive_drop.expect_tx.b64 mbarrier.arrive.noComplete.b64
mbarrier.test_wait.parity.b64 mbarrier.try_wait.parity.b64 multimem.ld_reduce.global.add.f32
multimem.ld_reduce.relaxed.gpu.global.add.u32 multimem.st.global.f32 multimem.st.relaxed.gpu.global.b32
multimem.red.global.add.f32 multimem.red.relaxed.gpu.global.add.u32
multimem.cp.async.bulk.global.shared::cta.bulk_group
multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32
multimem.ld_reduce.relaxed.gpu.global.add.acc::f32.v4.bf16x2 multimem.ld_reduce.weak.global.add.acc::f16.v4.e4m3x4
tensormap.replace.tile.global_address.global.b1024.b64 tensormap.replace.tile.rank.global.b1024.b32
tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 tensormap.replace.tile.fill_mode.global.b1024.b32
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned tex.1d.v4.f32.s32
tex.2d.v4.f32.f32 tex.base.2d.v4.f32.f32 tex.level.2d.v4.f32.f32 tex.grad.2d.v4.f32.f32 tex.a2d.v4.f32.f32
tex.cube.v4.f32.f32 tex.acube.v4.f32.f32 tex.3d.v4.f32.f32 tex.2dms.v4.f32.s32 tld4.r.2d.v4.f32.f32 txq.width.b32
txq.level.width.b32 txq.filter_mode.b32 suq.width.b32 suld.b.1d.b32.clamp suld.b.2d.v4.b32.trap sust.b.2d.v4.b32.clamp
sust.p.2d.v4.b32.clamp sured.b.add.2d.u32.clamp sured.p.add.2d.b32.clamp wmma.load.a.sync.aligned.row.m16n16k16.f16
wmma.load.b.sync.aligned.row.m16n16k16.f16 wmma.load.c.sync.aligned.row.m16n16k16.f16
wmma.store.d.sync.aligned.row.m16n16k16.f16 wmma.load.a.sync.aligned.row.m8n8k32.s4
wmma.load.b.sync.aligned.col.m8n8k32.s4 wmma.load.a.sync.aligned.row.m8n8k128.b1
wmma.load.b.sync.aligned.col.m8n8k128.b1 wmma.load.a.sync.aligned.row.m16n16k8.tf32
wmma.load.a.sync.aligned.row.m8n8k4.f64 wmma.load.b.sync.aligned.row.m16n16k8.tf32
wmma.load.b.sync.aligned.row.m8n8k4.f64 wmma.load.c.sync.aligned.row.m8n8k4.f64
wmma.store.d.sync.aligned.row.m8n8k4.f64 wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16
wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32 wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32
wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32 wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64
wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32
mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 vote.all.pred vote.ballot.b32 shfl.bfly.b32
nanosleep.u32 pmevent pmevent.mask trap brkpt tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32
tcgen05.dealloc.cta_group::1.sync.aligned.b32 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned
tcgen05.ld.sync.aligned.32x32b.x1.b32 tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32
tcgen05.st.sync.aligned.32x32b.x1.b32 tcgen05.wait::ld.sync.aligned tcgen05.wait::st.sync.aligned
tcgen05.cp.cta_group::1.128x256b tcgen05.cp.cta_group::1.4x256b.b8x16.b6x16_p32
tcgen05.cp.cta_group::1.64x128b.warpx2::02_13 tcgen05.cp.cta_group::1.32x128b.warpx4 tcgen05.shift.cta_group::1.down
tcgen05.mma.cta_group::1.kind::f16 tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X
tcgen05.mma.sp.cta_group::1.kind::f16 tcgen05.mma.ws.cta_group::1.kind::f16 tcgen05.mma.ws.sp.cta_group::1.kind::f16
tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 tcgen05.fence::before_thread_sync
tcgen05.fence::after_thread_sync
"""
SEEDS = _SEEDS.split()
"""Spellings of the ISA's syntax boxes (PTX ISA 9.7), of forms that the emulator does not run."""

_WORDS = """
L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::evict_normal L2::evict_first
L2::evict_last L2::evict_unchanged L2::cache_hint L2::64B L2::128B L2::256B L1 L2 level::eviction_priority ca cg cs lu
cv wb wt nc volatile weak relaxed acquire release acq_rel sc mmio tensormap uniform uni cta cluster gpu sys gl global
shared shared::cta shared::cluster local const param param::entry param::func generic and or xor cas exch add inc dec
min max popc noftz sub v2 v4 v8 b128 f16 f16x2 bf16 bf16x2 b8 u8 s8 b16 u16 s16 b32 u32 s32 b64 u64 s64 f32 f64 pred
e4m3 e5m2 e3m2 e2m3 e2m1 e4m3x4 e5m2x4 tf32 s4 u4 s2 u2 b1 f32x2 u16x2 s16x2 sync aligned arrive wait red warp all any
ballot bfly idx up down NaN abs full m8n8 m16n16 m8n16 m16n8 x1 x2 x4 x8 x16 x32 x64 x128 trans b8x16 b6x16_p32
b4x16_p64 m16n16k16 m8n32k16 m32n8k16 m16n16k8 m8n8k4 m8n8k32 m8n8k128 row col satfinite rn rz rm rp acc::f32 acc::f16
1d 2d 3d 4d 5d tile im2col im2col_no_offs im2col::w im2col::w::128 tile::gather4 tile::scatter4 bulk_group read
mbarrier::complete_tx::bytes multicast::cluster cta_group::1 cta_group::2 ignore_oob cp_mask noinc noComplete
expect_tx parity init inval test_wait try_wait pending_count mbarrier_init proxy alias async async::global
async::shared::cta async::shared::cluster async::generic tensormap::generic sync_restrict::shared::cta
sync_restrict::shared::cluster global_address rank box_dim global_dim global_stride element_stride elemtype
interleave_layout swizzle_mode swizzle_atomicity fill_mode b1024 to a1d a2d cube acube 2dms a2dms base level grad r g
b a p clamp zero trap width height depth channel_data_type channel_order normalized_coords array_size
num_mipmap_levels num_samples filter_mode addr_mode_0 addr_mode_1 addr_mode_2 force_unnormalized_coords memory_layout
texref samplerref surfref is_canceled get_first_ctaid get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z
fractional range cvt launch_dependents dealloc kind::f16 kind::tf32 kind::f8f6f4 kind::i8 kind::mxf8f6f4 kind::mxf4
kind::mxf4nvf4 block_scale scale_vec::1X scale_vec::2X scale_vec::4X block16 block32 collector::a::fill
collector::a::use collector::a::lastuse collector::a::discard collector::b0::fill collector::b0::use
collector::b0::lastuse collector::b0::discard collector::b1::fill collector::b1::use collector::b1::lastuse
collector::b1::discard collector::b2::fill collector::b2::use collector::b2::lastuse collector::b2::discard
collector::b3::fill collector::b3::use collector::b3::lastuse collector::b3::discard ashift 16x64b 16x128b 16x256b
32x32b 16x32bx2 pack::16b unpack::16b 128x256b 4x256b 128x128b 64x128b 32x128b warpx2::02_13 warpx2::01_23 warpx4
mbarrier::arrive::one
"""
WORDS = _WORDS.split()
"""Modifiers of the ISA's syntax boxes; those of the emulator's forms and all types are asked too."""

_LINES = """
ld.param.b32 r0, [d7]
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r0], [d0], r1, [r2]
cp.async.bulk.global.shared::cta.bulk_group [d0], [r0], r1
cp.async.bulk.commit_group
cp.async.bulk.wait_group 0
cp.async.bulk.prefetch.L2.global [d0], r1
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r0], [d0, {r1, r2}], [r3]
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [d0, {r1, r2}], [r3]
cp.async.bulk.prefetch.tensor.2d.L2.global.tile [d0, {r1, r2}]
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [d0], [r0], r1
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [d0, {r1, r2}], [r3]
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {f0,f1,f2,f3}, {r0,r1,r2,r3}, {r4,r5}, {f4,f5,f6,f7}
mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {r0,r1,r2,r3}, {r4,r5,r6,r7}, {r8,r9}, {r0,r1,r2,r3}
wgmma.fence.sync.aligned
wgmma.commit_group.sync.aligned
wgmma.wait_group.sync.aligned 0
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0,f1,f2,f3}, d0, d1, p0, 1, 1, 0, 0
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [r0], 32
tcgen05.dealloc.cta_group::1.sync.aligned.b32 r0, 32
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned
tcgen05.ld.sync.aligned.32x32b.x1.b32 {r0}, [r1]
tcgen05.st.sync.aligned.32x32b.x1.b32 [r1], {r0}
tcgen05.cp.cta_group::1.128x256b [r0], d0
tcgen05.shift.cta_group::1.down [r0]
tcgen05.mma.cta_group::1.kind::f16 [r0], d0, d1, r1, p0
tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [d0]
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [r0]
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [r0], r1, [r2]
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [r0], r1, [r2]
multimem.ld_reduce.relaxed.gpu.global.add.u32 r0, [d0]
multimem.st.relaxed.gpu.global.b32 [d0], r0
multimem.red.relaxed.gpu.global.add.u32 [d0], r0
tensormap.replace.tile.global_address.global.b1024.b64 [d0], d1
barrier.cluster.arrive
barrier.cluster.arrive.release.aligned
barrier.cluster.wait.acquire
barrier.red.popc.u32 r0, 0, p1
fence.mbarrier_init.release.cluster
fence.proxy.tensormap::generic.release.cta
mbarrier.arrive_drop.shared.b64 d0, [d7]
mbarrier.complete_tx.relaxed.cta.shared.b64 [d7], 16
mbarrier.try_wait.shared.b64 p0, [d7], d1
setmaxnreg.inc.sync.aligned.u32 104
discard.global.L2 [d0], 128
applypriority.global.L2::evict_normal [d0], 128
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [r0], [r1]
"""


def _lines() -> tuple[str, ...]:
    named = {"%b32_": "r", "%b64_": "d", "%b16_": "h", "%pred_": "p", "%f32_": "f", ";": ""}
    of_kernels = [line for line in OF_KERNELS if line.split(".")[0] not in ("mov", "exit;", "trap;")]
    for old, new in named.items():
        of_kernels = [line.replace(old, new) for line in of_kernels]
    return (*of_kernels, *_LINES.strip().splitlines())


LINES = _lines()
"""Legal instructions with operands, at least one of each name whose modifiers are asked."""

MORE = tuple(Path(__file__).with_name("legal_lines.txt").read_text().splitlines())
"""Legal instructions of every kind in the syntax boxes of names whose forms the emulator does not all have.

A modifier that ptxas takes only beside certain others, in a form that neither `MORE` nor the table has, would be said
not to exist. So these are many, and apart from `LINES`, whose random walk is a measure.
"""

_REGISTERS = "".join(
    f".reg .{kind} {name}<10>; "
    for name, kind in zip("chrdqfp", ("b8", "b16", "b32", "b64", "b128", "f32", "pred"), strict=True)
)
_REFUSED = "membar.sc.gl"
"""An illegal modifier after all lines, so that ptxas makes no code of them: it takes long, and may crash."""
_NAMED = re.compile(r"instruction '([^']+)'")


def asked(opcode: str) -> bool:
    """Whether modifiers of an opcode are asked here; for arithmetic the emulator's table is complete."""
    return opcode not in UNASKED and opcode in REFUSED


def errors(lines: Sequence[str], program: str, target: str) -> list[list[str]]:
    """ptxas's errors for each instruction."""
    found: list[list[str]] = []
    while len(found) < len(lines):  # ptxas stops at a syntax error
        found += _errors(lines[len(found) :], program, target)
    return found


def _errors(lines: Sequence[str], program: str, target: str) -> list[list[str]]:
    """The same up to the first syntax error."""
    head = f".version {_version(program)}\n.target {target}\n.address_size 64\n.entry k() {{\n{_REGISTERS}\n"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "lines.ptx")
        source.write_text(head + "".join(f"{line};\n" for line in [*lines, _REFUSED]) + "}\n")
        command = [tool(program), "-arch", target, source, "-o", "/dev/null"]
        run = subprocess.run(command, capture_output=True, text=True)
    found: list[list[str]] = [[] for _ in lines]
    for place in re.finditer(r", line (\d+); (error|fatal)\s*: (.*)", run.stderr):
        if 0 <= (at := int(place[1]) - 6) < len(found):
            found[at].append(place[3])
            if place[2] == "fatal":
                return found[: at + 1]
    if run.returncode < 0:
        half = len(lines) // 2
        return errors(lines[:half], program, target) + errors(lines[half:], program, target) if half else [["crash"]]
    return found


@cache
def _version(program: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "version.ptx")
        source.write_text(".version 99.0\n")
        run = subprocess.run([tool(program), source, "-o", "/dev/null"], capture_output=True, text=True)
    return re.search(r"current version is '([\d.]+)'", run.stderr)[1]  # type: ignore[index]


_STRANGE = re.compile(r"Unknown modifier|Parsing error")
"""ptxas's errors about words that it knows as no modifier."""


@cache
def known_words(program: str, target: str) -> frozenset[str]:
    """The candidates that an assembler knows as a modifier of some instruction."""
    known = (c for o in FORMS for f in FORMS[o] for g in f.groups for c in g.choices)
    candidates = list(dict.fromkeys([*known, *TYPES, *WORDS]))
    said = errors([f"ld.{word} r0, [d0]" for word in candidates], program, target)
    return frozenset(w for w, e in zip(candidates, said, strict=True) if not any(_STRANGE.search(x) for x in e))


def seeds() -> list[str]:
    """One spelling of each form that is asked, and `SEEDS`."""
    forms = [next(iter(f.spellings())).spelling for o in FORMS if asked(o) for f in FORMS[o]]
    return list(dict.fromkeys([*forms, *SEEDS]))


def names_of(spellings: Iterable[str]) -> dict[str, str]:
    """By spelling the name of its instruction, as ptxas has it in errors: `cp.async.bulk.tensor`."""
    listed = list(spellings)
    found: dict[str, str] = {}
    for program, target in ASKED:
        # With two modifiers that belong to no instruction together ptxas complains, and names it.
        for spelling, said in zip(listed, errors([f"{s}.ftz.xorsign" for s in listed], program, target), strict=True):
            named = next((m[1] for w in said if (m := _NAMED.search(w))), "")
            if named and (spelling == named or spelling.startswith(f"{named}.")):
                found.setdefault(spelling, named)
    return found


_ILLEGAL = re.compile(r"Illegal modifier '\.([^']+)' for instruction")


def taken(context: Context, candidates: Iterable[str]) -> set[str]:
    """The words that not all assemblers call illegal behind the modifiers of a context, whatever else they say."""
    left = sorted(candidates)
    for assembler in context.assemblers:
        said = errors([context.with_parts((*context.parts, word)) for word in left], *assembler)
        illegal = [any((m := _ILLEGAL.search(x)) and m[1] == w for x in e) for w, e in zip(left, said, strict=True)]
        left = [word for word, no in zip(left, illegal, strict=True) if no]
    return {*candidates} - {*left}


OF_MODIFIERS = re.compile(
    r"(?!.* with \d arguments)(?:^(?:Illegal|Unexpected|Multiple|Duplicate|Modifier|Not a name|Unsupported modifier"
    r"|State space incorrect|No state space|Incorrect type|(?:Vector|Comparison) qualifier)"
    r"|modifier required|required for instruction)"
)
"""ptxas's errors about modifiers, and not about operands or the target."""
_OPERANDS = re.compile(r"Arguments mismatch|must be constant")
"""Errors about operands that hide those about modifiers."""
_TARGET = re.compile(r"not supported|requires \.target|cannot be compiled")


def of_name(spelling: str, named: Iterable[str]) -> str:
    """The longest of some names that a spelling begins with, as the linter finds it."""
    parts = spelling.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in named), "")


SPELLINGS = 400
"""The most spellings of each form that `legal_spellings` has."""


def legal_spellings(named: Collection[str]) -> dict[str, list[tuple[str, ...]]]:
    """By name the modifiers, after the name, of spellings that are known to be legal: of forms, seeds and lines."""
    forms = (f for o in FORMS if asked(o) for f in FORMS[o])
    spelled = [bound.spelling for form in forms for bound in islice(form.spellings(), SPELLINGS)]
    found: dict[str, list[tuple[str, ...]]] = {}
    for spelling in dict.fromkeys([*spelled, *SEEDS, *(line.partition(" ")[0] for line in (*LINES, *MORE))]):
        if name := of_name(spelling, named):
            found.setdefault(name, []).append(tuple(p for p in spelling.removeprefix(name).split(".") if p))
    return found


@dataclass(frozen=True)
class Context:
    """A legal spelling of an instruction, with operands in whose place ptxas says nothing against its modifiers."""

    name: str
    parts: tuple[str, ...]
    operands: str
    assemblers: tuple[tuple[str, str], ...]
    """Assemblers and targets that have nothing against the modifiers: those of `ASKED`, or another."""
    accepted: set[tuple[str, ...]] = field(default_factory=set, compare=False)
    """All modifiers against which one of them said nothing when `refused` asked."""

    def with_parts(self, parts: Sequence[str]) -> str:
        """The line with other modifiers."""
        return _line(self.name, parts, self.operands)


def contexts(legal: Collection[str]) -> list[Context]:
    """`LINES` and `MORE`, each with the first assembler that says nothing against it."""
    lines, found = (*LINES, *MORE), list[Context]()
    assemblers = (*ASKED, *OTHERS)
    said = [errors(lines, *assembler) for assembler in assemblers]
    for line, *answers in zip(lines, *said, strict=True):
        spelling, _, operands = line.partition(" ")
        name = of_name(spelling, legal)  # ptxas gives no name in errors about `alloca`
        fine = [a for a, answer in zip(assemblers, answers, strict=True) if not any(map(_about_modifiers, answer))]
        if name and fine:
            parts = tuple(p for p in spelling.removeprefix(name).split(".") if p)
            found.append(Context(name, parts, operands, tuple(a for a in fine if a in ASKED) or (fine[0],)))
    return found


def _variants(operands: str) -> tuple[str, ...]:
    """Operands, and the same with a cache policy after them, which `.L2::cache_hint` needs."""
    return (operands, f"{operands}, d1") if operands else ("",)


def _about_modifiers(text: str) -> bool:
    """Whether an error is about modifiers, or hides whether one is."""
    return text == "crash" or any(kind.search(text) for kind in (_STRANGE, OF_MODIFIERS, _OPERANDS, _TARGET))


def refused(context: Context, changed: Iterable[Sequence[str]]) -> list[bool]:
    """Which other modifiers in a context all its assemblers refuse, with its operands or with a cache policy more.

    What ptxas refuses for its operands alone is not. A line on which ptxas crashes is.
    """
    listed = [*changed]
    wrong = [True] * len(listed)
    for assembler in context.assemblers:
        verdicts = {at: "" for at, no in enumerate(wrong) if no}
        for operands in _variants(context.operands):
            left = [at for at, verdict in verdicts.items() if not verdict]
            said = errors([_line(context.name, listed[at], operands) for at in left], *assembler)
            verdicts.update(zip(left, map(_judged, said), strict=True))
        for at, verdict in verdicts.items():
            wrong[at] = verdict == "wrong"
            if verdict == "right":
                context.accepted.add(tuple(listed[at]))
    return wrong


def _judged(said: Sequence[str]) -> str:
    """Whether modifiers are right or wrong by ptxas's errors; "" if these are about operands and may hide others."""
    if "crash" in said or any(_STRANGE.search(text) or OF_MODIFIERS.search(text) for text in said):
        return "wrong"
    return "" if any(map(_OPERANDS.search, said)) else "right"


def never(
    given: Sequence[Context], candidates: Mapping[str, Collection[str]], legal: Mapping[str, Sequence[Collection[str]]]
) -> dict[str, set[str]]:
    """By name those of its candidates that no instruction of the name takes, although no error names them as illegal.

    A word counts if it is in no legal spelling of that name, and if ptxas says of each context that its modifiers are
    wrong with the word added and with it in the place of any modifier.
    """
    found = {c.name: {*candidates[c.name]} - {w for spelled in legal[c.name] for w in spelled} for c in given}
    for context in given:
        parts, words = context.parts, sorted(found[context.name])
        places = [(parts[:n], parts[n + 1 :]) for n in range(len(parts))]
        changed = [each for w in words for each in ((*parts, w), *((*before, w, *after) for before, after in places))]
        wrong = np.array(refused(context, changed), bool).reshape(len(words), 1 + len(places)).all(axis=1)
        found[context.name] &= {word for word, no in zip(words, wrong, strict=True) if no}
    return found


def needs(
    given: Sequence[Context], anywhere: Collection[str], legal: Mapping[str, Sequence[Collection[str]]]
) -> dict[tuple[str, str], set[frozenset[str]]]:
    """What an instruction must have: by name and a modifier ("": always) sets of words, one of each set.

    A modifier of a context is needed if ptxas refuses the context without it. Words that may stand in its place are as
    good. It is needed beside another modifier if everything that is known to be legal with that one has it, and every
    context with that one needs it, also without any third modifier.
    """
    named = legal.keys()
    family = {n: {w for m in named if m.startswith(f"{n}.") for w in m.removeprefix(f"{n}.").split(".")} for n in named}
    missed: dict[tuple[str, str], list[Context]] = {}
    for context in given:
        without = [(*context.parts[:n], *context.parts[n + 1 :]) for n in range(len(context.parts))]
        for part, no in zip(context.parts, refused(context, without), strict=True):
            if no and part not in KINDS["types"]:
                missed.setdefault((context.name, part), []).append(context)
    found: dict[tuple[str, str], set[frozenset[str]]] = {}
    for (name, part), needing in missed.items():
        group = frozenset({part, *family[name]}.union(*(_in_place(c, part, anywhere) for c in needing[:3])))
        if all(map(group.intersection, [*legal[name], *_accepted(name, given)])):
            found.setdefault((name, ""), set()).add(group)
            continue
        for other in {word for context in needing for word in context.parts} - group:
            known = [s for s in [*legal[name], *_accepted(name, given)] if other in s]
            if all(map(group.intersection, known)) and _needed_beside(other, group, name, given):
                found.setdefault((name, other), set()).add(group)
    return {
        (name, beside): kept
        for (name, beside), groups in found.items()
        if (kept := {g for g in groups if _holds(g, beside, _accepted(name, given))})
    }


def _accepted(name: str, given: Sequence[Context]) -> set[tuple[str, ...]]:
    """All modifiers of a name against which ptxas said nothing so far."""
    return {spelled for context in given if context.name == name for spelled in context.accepted}


def _holds(group: frozenset[str], beside: str, accepted: Collection[Sequence[str]]) -> bool:
    return all(group.intersection(spelled) for spelled in accepted if not beside or beside in spelled)


def _in_place(context: Context, part: str, anywhere: Collection[str]) -> set[str]:
    """The words that ptxas does not refuse in the place of a modifier."""
    at, words = context.parts.index(part), sorted(anywhere)
    changed = [(*context.parts[:at], word, *context.parts[at + 1 :]) for word in words]
    return {word for word, no in zip(words, refused(context, changed), strict=True) if not no}


def _needed_beside(other: str, group: Collection[str], name: str, given: Sequence[Context]) -> bool:
    """Whether ptxas refuses each context of a name that has a modifier without all of a group, and also if any third
    modifier is missing as well, which would otherwise be what needs the group."""
    for context in (c for c in given if c.name == name and other in c.parts):
        left = [p for p in context.parts if p not in group]
        thirds = [[p for p in left if p != third] for third in left if third != other and third not in KINDS["types"]]
        if not all(refused(context, [left, *thirds])):
            return False
    return True


_KINDS = {
    "types": "texref samplerref surfref",
    "state spaces": "const global local param param::entry param::func shared shared::cluster shared::cta",
    "scopes": "cta cluster gpu sys",
    "memory orders": "relaxed acquire release acq_rel sc volatile weak",
    "operations": "add sub min max inc dec and or xor exch cas popc",
    "eviction priorities": """L1::evict_first L1::evict_last L1::evict_normal L1::evict_unchanged L1::no_allocate
        L2::evict_first L2::evict_last L2::evict_normal L2::evict_unchanged""",
    "dimensions": "1d 2d 3d 4d 5d",
    "load modes": "tile tile::gather4 tile::scatter4 im2col im2col::w im2col::w::128 im2col_no_offs",
    "vectors": "v2 v4 v8",
    "counts": "x1 x2 x4 x8 x16 x32 x64 x128",
    "modes": "all any ballot uni bfly down idx up",
}
KINDS = {kind: frozenset(words.split()) for kind, words in _KINDS.items()}
KINDS["types"] |= TYPES.keys() - {"pred"}  # ptxas ignores `.pred` at many instructions
"""Modifiers of one kind, of which an instruction takes a certain number."""
_SHAPES = re.compile(r"m\d+n\d+(k\d+)?|\d+x\d+b|16x32bx2")


def kinds(anywhere: Collection[str]) -> dict[str, frozenset[str]]:
    """`KINDS`, without what ptxas knows as no modifier, and the shapes."""
    return {kind: words & {*anywhere} for kind, words in KINDS.items()} | {
        "shapes": frozenset(filter(_SHAPES.fullmatch, anywhere))
    }


def counts(
    given: Sequence[Context], of_kinds: Mapping[str, Collection[str]], legal: Sequence[Collection[str]]
) -> dict[str, set[int]]:
    """By kind how many of its words an instruction of a name may have: as many as its `legal` spellings, and others
    where ptxas said nothing against that in one of the contexts of the name."""
    words = sorted(frozenset().union(*of_kinds.values()))
    for context in given:
        parts = context.parts
        less = [(*parts[:n], *parts[n + 1 :]) for n in range(len(parts))]
        refused(context, [*((*parts, word) for word in words), *less])
    known = [*legal, *(spelled for context in given for spelled in context.accepted)]
    return {kind: {number_of(w, spelled, kind) for spelled in known} for kind, w in of_kinds.items()}


def later(named: Collection[str], anywhere: Collection[str], given: Sequence[Context]) -> dict[str, set[str]]:
    """By name in several parts the modifiers that may stand before its last part: `bar.cta.red` is `bar.red`."""
    found: dict[str, set[str]] = {}
    for context in given:
        *first, last = context.name.split(".")
        if first and context.name not in found:
            words = sorted(anywhere)
            lines = [f"{'.'.join([*first, word, last, *context.parts])} {context.operands}" for word in words]
            said = errors(lines, *context.assemblers[0])
            found[context.name] = {w for w, answer in zip(words, said, strict=True) if _judged(answer) != "wrong"}
    return {name: words for name, words in found.items() if words}


def _line(name: str, modifiers: Sequence[str], operands: str) -> str:
    return f"{'.'.join([name, *modifiers])} {operands}"


def _with_kinds(group: frozenset[str], of_name: Collection[str]) -> frozenset[str]:
    """A group, and all words of its kinds that the name takes: some may stand there only if others change, too."""
    of_kinds = [words & {*of_name} for words in kinds(of_name).values() if words & group and not words & TYPES.keys()]
    return group.union(*of_kinds)


def _rows_of(
    anywhere: frozenset[str],
    legal: Mapping[str, Sequence[Collection[str]]],
    given: Sequence[Context],
) -> dict[str, set[str]]:
    """The rows of one name that contexts of it give."""
    name = given[0].name
    known = {word for spelled in legal[name] for word in spelled}
    for context in given:
        known |= taken(context, anywhere - known)
    rows = {f"{OF} {name}": known - never(given, {name: known}, legal)[name]}
    numbers = counts(given, kinds(anywhere), legal[name])
    for (_, beside), groups in sorted(needs(given, anywhere, legal).items()):
        listed = sorted({" ".join(sorted(_with_kinds(group, rows[f"{OF} {name}"]))) for group in groups})
        rows |= {f"{NEEDS} {name} {beside or ALWAYS} {n}": {*group.split()} for n, group in enumerate(listed)}
    for kind, words in kinds(anywhere).items():
        if not words.isdisjoint(rows[f"{OF} {name}"]):
            rows[f"{COUNTS} {name} {kind}"] = {*map(str, numbers[kind])}
    if of_later := later([name], anywhere, given):
        rows[f"{LATER} {name}"] = of_later[name]
    return rows


def content() -> str:
    """The content of the file."""
    releases = " and ".join(dict.fromkeys(f"PTX {_version(program)}" for program, _ in ASKED))
    head = [
        f"# {ANY}: the words that ptxas knows as a modifier anywhere. names: instructions outside arithmetic.",
        f"# {OF}: words that a name takes in some context.",
        f"# {NEEDS}: words of which an instruction has one, beside a modifier or {ALWAYS}.",
        f"# {KIND}: words of one kind. {COUNTS}: how many of that kind an instruction may have.",
        f"# {LATER}: words that may stand before the last part of a name.",
        f"# Asked of the ptxas in Triton's wheel ({releases}), for {', '.join(dict.fromkeys(t for _, t in ASKED))}.",
        "# Written by tests/support/lint/ptxas_modifiers.py --write; do not edit.",
    ]
    anywhere = frozenset().union(*(known_words(*each) for each in ASKED))
    rows = {ANY: anywhere, "names": set(names_of(seeds()).values())}
    legal = legal_spellings(rows["names"])
    given = contexts(legal)
    with ProcessPoolExecutor() as pool:
        of_names = [[c for c in given if c.name == name] for name in dict.fromkeys(c.name for c in given)]
        found = pool.map(partial(_rows_of, anywhere - CRASHING, legal), of_names)
        rows |= {row: words for each in found for row, words in each.items()}
    rows |= {f"{KIND} {kind}": {*words} for kind, words in kinds(anywhere).items()}
    return "\n".join([*head, *(f"{row}: {' '.join(sorted(words))}" for row, words in rows.items()), ""])


def main() -> None:
    """Write the file, or say whether it is what ptxas says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        DATA.write_text(content())
    else:
        print("equal" if content() == DATA.read_text() else "different")


if __name__ == "__main__":
    main()
