"""The tables of cluster instructions and of bulk copies accept exactly the forms that ptxas accepts."""

from __future__ import annotations

import itertools

import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.targets import Target
from tests.support.emulator.legality import errors_of_ptxas, needs

TELLS = ".mbarrier::complete_tx::bytes"
SPACES = ["", ".shared", ".shared::cta", ".shared::cluster", ".global"]
TYPES = ["b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64", "f16", "bf16"]
OPS = ["add", "min", "max", "inc", "dec", "and", "or", "xor"]


def width(kind: str) -> str:
    return {"f16": "16", "bf16": "16"}.get(kind, kind[1:])


def addresses() -> list[str]:
    found = []
    for space, kind in itertools.product(SPACES, ("u32", "s32", "u64", "s64", "b64")):
        if space == ".shared::cluster" or kind[1:] == "64":  # ptxas stops at a generic address of 32 bits
            n = kind[1:]
            found.append(f"mapa{space}.{kind} %b{n}_0, %b{n}_1, %b32_2;")
            found.append(f"getctarank{space}.{kind} %b32_0, %b{n}_1;")
    for space in (*SPACES[1:], ".local", ".const", ".param", ".param::entry"):
        found.append(f"isspacep{space} %pred_0, %b64_0;")
    return found


def barriers() -> list[str]:
    sems, ends = ["", ".release", ".relaxed", ".acquire", ".acq_rel"], ["", ".aligned"]
    found = [
        f"barrier.cluster.{what}{sem}{end};" for what in ("arrive", "wait", "sync") for sem in sems for end in ends
    ]
    return [*found, "fence.mbarrier_init.release.cluster;", "fence.mbarrier_init.acquire.cluster;"]


def stores() -> list[str]:
    found = []
    for weak, vec, kind in itertools.product(("", ".weak", ".relaxed"), (1, 2, 4), TYPES):
        parts = ", ".join(f"%b{width(kind)}_{i}" for i in range(vec))
        value, word = (f"{{{parts}}}", f".v{vec}") if vec > 1 else (parts, "")
        found.append(f"st.async{weak}.shared::cluster{TELLS}{word}.{kind} [%b32_0], {value}, [%b32_1];")
    for order, space, op, kind in itertools.product(("", ".relaxed.cluster"), ("", ".shared::cluster"), OPS, TYPES[:8]):
        found.append(f"red.async{order}{space}{TELLS}.{op}.{kind} [%b32_0], %b{width(kind)}_1, [%b32_1];")
    return found


def copies() -> list[str]:
    found = []
    for to, what, several, hint in itertools.product(
        (".shared::cta", ".shared::cluster", ".shared"), (".global", ".shared::cta"), ("", ".multicast::cluster"),
        ("", ".L2::cache_hint"),
    ):  # fmt: skip
        source = "[%b64_1]" if what == ".global" else "[%b32_1]"
        more = ", %b16_4" * bool(several) + ", %b64_5" * bool(hint)
        found.append(f"cp.async.bulk{to}{what}{TELLS}{several}{hint} [%b32_0], {source}, %b32_2, [%b32_3]{more};")
        if what == ".global":
            box = "[%b32_0], [%b64_1, {%b32_1, %b32_2}], [%b32_3]" + more
            for group in ("", ".cta_group::1", ".cta_group::2"):
                found.append(f"cp.async.bulk.tensor.2d{to}.global{TELLS}{several}{group}{hint} {box};")
    for hint, mask in itertools.product(("", ".L2::cache_hint"), ("", ".cp_mask")):
        more = ", %b64_5" * bool(hint) + ", %b16_4" * bool(mask)
        found.append(f"cp.async.bulk.global.shared::cta.bulk_group{hint}{mask} [%b64_0], [%b32_1], %b32_2{more};")
        if not mask:
            found.append(f"cp.async.bulk.prefetch.L2.global{hint} [%b64_0], %b32_2{more};")
            found.append(f"cp.async.bulk.prefetch.tensor.1d.L2.global{hint} [%b64_0, {{%b32_1}}]{more};")
    for op, kind in itertools.product(OPS, TYPES):
        found.append(
            f"cp.reduce.async.bulk.shared::cluster.shared::cta{TELLS}.{op}.{kind} [%b32_0], [%b32_1], %b32_2, [%b32_3];"
        )
        for noftz in ("", ".noftz"):
            head = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}{noftz}.{kind}"
            found.append(f"{head} [%b64_0], [%b32_1], %b32_2;")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120a"])
def test_the_tables_accept_what_ptxas_accepts(target: str) -> None:
    """Slow: ptxas runs again and again until it has named each of the hundreds of lines that it refuses."""
    needs(target)
    isa.load()
    device = Target.parse(target)
    lines = [*addresses(), *barriers(), *stores(), *copies()]
    different = []
    for text, words in zip(lines, errors_of_ptxas(lines, target), strict=True):
        opcode, *modifiers = text.split()[0].rstrip(";").split(".")
        accepted = any(f.requirement_unmet(device) is None for f in find(opcode, tuple(modifiers)))
        if accepted == bool(words):
            different.append(f"{text}: ptxas {words or 'accepts it'}")
    assert different == []
