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


MODES = {"": 0, ".tile": 0, ".im2col": -2, ".im2col::w": 2, ".im2col::w::128": 2, ".tile::gather4": 0,
         ".tile::scatter4": 0, ".im2col_no_offs": 0}  # fmt: skip
"""How many offsets a load has in a mode; -2: two fewer than the tensor has dimensions."""


def boxes() -> list[str]:
    """Copies of boxes in all modes. Reductions of rows, which ptxas makes a copy without one, are left out."""
    found = []
    for (mode, offsets), rank in itertools.product(MODES.items(), (1, 2, 3, 5)):
        count = 5 if mode.endswith("4") else rank
        at = f"[%b64_0, {{{', '.join(f'%b32_{k % 4}' for k in range(count))}}}]"
        informed = max(1, rank - 2) if offsets < 0 else offsets
        info = f", {{{', '.join(f'%b16_{k}' for k in range(informed))}}}" * bool(informed)
        for to, several, group in itertools.product(
            (".shared::cta", ".shared::cluster"), ("", ".multicast::cluster"), ("", ".cta_group::2")
        ):
            mask = ", %b16_4" * bool(several)
            head = f"cp.async.bulk.tensor.{rank}d{to}.global{mode}{TELLS}{several}{group}"
            found.append(f"{head} [%b32_4], {at}, [%b32_5]{info}{mask};")
        found.append(f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global{mode} {at}{info};")
        found.append(f"cp.async.bulk.tensor.{rank}d.global.shared::cta{mode}.bulk_group {at}, [%b32_4];")
        if mode != ".tile::scatter4":
            for op in OPS:
                head = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}{mode}.bulk_group"
                found.append(f"{head} {at}, [%b32_4];")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120a"])
def test_the_tables_accept_what_ptxas_accepts(target: str) -> None:
    """Slow: ptxas runs again and again until it has named each of the hundreds of lines that it refuses."""
    needs(target)
    isa.load()
    device = Target.parse(target)
    lines = [*addresses(), *barriers(), *stores(), *copies(), *boxes()]
    different = []
    for text, words in zip(lines, errors_of_ptxas(lines, target), strict=True):
        opcode, *modifiers = text.split()[0].rstrip(";").split(".")
        accepted = any(f.requirement_unmet(device) is None for f in find(opcode, tuple(modifiers)))
        if accepted == bool(words):
            different.append(f"{text}: ptxas {words or 'accepts it'}")
    assert different == []
