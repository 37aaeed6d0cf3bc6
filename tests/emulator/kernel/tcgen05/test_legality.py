"""The table of tcgen05's forms accepts exactly the modifiers that ptxas accepts."""

from __future__ import annotations

import itertools
import re

import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.kernel.tcgen05.loads import PER_COUNT
from ptxdiff.emulator.targets import Target
from tests.support.emulator.legality import errors_of_ptxas, needs

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
SIZES = ("", ".scale_vec::1X", ".scale_vec::2X", ".scale_vec::4X", ".block16", ".block32")
SHAPES = ("128x256b", "4x256b", "128x128b", "64x128b", "32x128b")
COPIES = ("", ".warpx2::02_13", ".warpx2::01_23", ".warpx4")
COLLECTORS = (".collector::a::fill", ".collector::a::lastuse", ".collector::b0::fill", ".collector::b3::discard")
FORMATS = ("", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64", ".b8x16")
A, D, B = "[%b32_0]", "%b64_0", "%b64_1"


OWN = ".reg .b32 r<128>; "
"""Registers of loads, which must differ from each other."""


def registers(count: int) -> str:
    return "{" + ", ".join(f"r{i}" for i in range(count)) + "}"


def moves() -> list[str]:
    found = []
    for shape, count, packed in itertools.product(PER_COUNT, COUNTS, (False, True)):
        many = PER_COUNT[shape] * count
        if many > 128:
            continue  # ptxas has another error for too many registers
        apart = ", 16" if shape == "16x32bx2" else ""
        head, packing = f"sync.aligned.{shape}.x{count}", packed * "pack::16b"
        found.append(f"{OWN}tcgen05.ld.{head}{'.' * packed}{packing}.b32 {registers(many)}, {A}{apart};")
        found.append(f"{OWN}tcgen05.st.{head}{packed * '.un'}{packing}.b32 {A}{apart}, {registers(many)};")
    for shape, copies, packed in itertools.product(SHAPES, COPIES, FORMATS):
        found.append(f"tcgen05.cp.cta_group::1.{shape}{copies}{packed} {A}, {D};")
    found += [f"tcgen05.wait::{x}.sync.aligned;" for x in ("ld", "st", "cp")]
    found += [f"tcgen05.fence::{x}_thread_sync;" for x in ("before", "after")]
    return found


def products() -> list[str]:
    found = []
    for kind, scaled, size, ws in itertools.product(KINDS, (False, True), SIZES, (False, True)):
        if size and not scaled:
            continue
        group = "cta_group::1"
        head = f"tcgen05.mma{'.ws' * ws}.{group}.kind::{kind}{'.block_scale' * scaled}{size}"
        scales = f"{A}, [%b32_1], " * scaled
        for collector in ("", *COLLECTORS):
            found.append(f"{head}{collector} {A}, {D}, {B}, %b32_2, {scales}%pred_0;")
            thin = f"{head}{collector} {A}, {D}, {B}, [%b32_3], %b32_2, {scales}%pred_0;"
            found.append(thin.replace(".ws." if ws else ".mma.", ".ws.sp." if ws else ".mma.sp."))
    return found


def managing() -> list[str]:
    return [
        f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 {A}, 64;",
        f"tcgen05.alloc.cta_group::1.sync.aligned.b32 [{D}], 64;",
        f"tcgen05.alloc.cta_group::1.sync.aligned.shared.b32 {A}, 64;",
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %b32_0, 64;",
        "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;",
        f"tcgen05.shift.cta_group::1.down {A};",
        f"tcgen05.shift.cta_group::1.up {A};",
        *(
            f"tcgen05.commit.cta_group::1.mbarrier::arrive::one{space}.b64 [{'%b32_0' if space else D}];"
            for space in ("", ".shared::cluster", ".shared::cta")
        ),
    ]


def disagreements(lines: list[str], target: str) -> list[str]:
    needs(target)
    isa.load()
    device = Target.parse(target)
    different = []
    for text, words in zip(lines, errors_of_ptxas(lines, target), strict=True):
        name = re.findall(r"tcgen05[\w.:]+", text)[0]
        opcode, *modifiers = name.split(".")
        accepted = any(f.requirement_unmet(device) is None for f in find(opcode, tuple(modifiers)))
        if accepted == bool(words):
            different.append(f"{name}: ptxas {words or 'accepts it'}")
    return different


QUICK = ("sm_90a", "sm_100a", "sm_100f")
_SLOW = ("sm_100", "sm_103a", "sm_107a", "sm_107f", "sm_110a", "sm_110f", "sm_120a")


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", [*QUICK, *(pytest.param(t, marks=pytest.mark.slow) for t in _SLOW)])
def test_the_table_accepts_what_ptxas_accepts(target: str) -> None:
    """Slow: more targets."""
    assert disagreements([*managing(), *moves(), *products()], target) == []


@pytest.mark.parametrize(
    "target", ["sm_100a", *(pytest.param(t, marks=pytest.mark.slow) for t in ("sm_100f", "sm_110a"))]
)
def test_the_table_accepts_what_ptxas_accepts_for_pairs(target: str) -> None:
    """Slow: more targets. The forms are separate from those above because ptxas accepts one .cta_group in a kernel."""
    lines = [text.replace("cta_group::1", "cta_group::2") for text in (*managing(), *moves(), *products())]
    mask = "tcgen05.commit.cta_group::2.mbarrier::arrive::one{}.multicast::cluster.b64 [{}], %b16_0;"
    lines += [mask.format("", D), mask.format(".shared::cluster", "%b32_0"), mask.format(".shared::cta", "%b32_0")]
    assert disagreements([text for text in lines if "cta_group" in text], target) == []
