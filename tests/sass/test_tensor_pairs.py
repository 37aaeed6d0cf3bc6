"""Pairs of blocks that work together in tensor memory, in machine code, give the bits of the references."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.sass import tensor_memory
from ptxdiff.sass.clusters import ClusterBlocks
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.run import run_machine_code
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import probe
from tests.emulator.kernel.tcgen05 import test_pair_scales, test_pairs
from tests.emulator.kernel.tcgen05.test_pairs import PRODUCTS
from tests.support.emulator import pair_products as pairs
from tests.support.emulator.tensor_products import Product, drawn, expected
from tests.support.sass.assembly import written

TARGET = "sm_100a"


@pytest.fixture(autouse=True)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let `pair_products.run` run machine code of this level of ptxas."""
    if not probe()[TARGET].available:
        pytest.skip(f"no ptxas for {TARGET}")
    opt = int(getattr(request, "param", 3))

    def as_machine_code(kernel: str, data: np.ndarray, out: np.ndarray, blocks: int = 2) -> np.ndarray:
        kernel = kernel.replace(".version 8.7", ".version 8.8")  # which has .block16
        run_ptx(kernel, blocks, 128, data, out, level="sass", opt=opt, shared=65536)
        return out

    for module in (pairs, test_pairs):
        monkeypatch.setattr(module, "run", as_machine_code)
    return opt


def multiplied(product: Product, **options: object) -> tuple[np.ndarray, np.ndarray]:
    a, b = drawn(product, 1)
    c, cells = pairs.accumulator(product, 2, 32)
    return pairs.ran(product, a, b, cells, **options), expected(product, a, b, c)  # type: ignore[arg-type]


@pytest.mark.sample(4)
@pytest.mark.parametrize("level", [0, 3], indirect=True)
@pytest.mark.parametrize("product", PRODUCTS[::3], ids=lambda p: f"{p.kind}-{p.a}-{p.d}-{p.m}-{p.n}")
def test_products_give_the_bits_of_the_references(product: Product, level: int) -> None:
    np.testing.assert_array_equal(*multiplied(product))


def test_either_block_may_issue() -> None:
    np.testing.assert_array_equal(*multiplied(PRODUCTS[1], issuer=1))


@pytest.mark.sample(2)
@pytest.mark.parametrize("product", test_pair_scales.SCALED[:2], ids=lambda p: f"{p.kind}-{p.a}-{p.m}-{p.n}")
def test_scaled_products_give_the_bits_of_the_references(product: Product) -> None:
    test_pair_scales.test_scaled_products(product)


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", [0, 3], indirect=True)
def test_each_block_copies_from_its_own_shared_memory(level: int) -> None:
    test_pairs.test_each_block_copies_from_its_own_shared_memory()


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", [0, 3], indirect=True)
def test_commits_without_a_pair_reach_several_blocks(level: int) -> None:
    test_pairs.test_multicast_commits_without_a_pair()


def test_a_planted_mistake_gives_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_memory, "_members", lambda machine, instruction, block: [block])
    with pytest.raises(MachineFault, match="not allocated"):
        multiplied(PRODUCTS[0])


def test_a_commit_that_reaches_one_block_only_leaves_the_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterBlocks, "near", lambda self, instruction, address, lane, ranks: [address])
    with pytest.raises(MachineFault, match="deadlock"):
        multiplied(PRODUCTS[0])


@pytest.mark.parametrize("text", [
    "UTCBAR.2CTA.FOO [UR4], URZ", "UTCBAR.MULTICAST [UR4], URZ", "UTCBAR [UR4], UR5",
    "UTCATOMSWS.2CTA.AND URZ, UR4", "UTCHMMA.2CTA.WS gdesc[UR6], gdesc[UR8], tmem[UR10], tmem[UR4], idesc[UR5], UP0",
    "UTCSHIFT tmem[UR4]", "UTCSHIFT.UP tmem[UR4]",
])  # fmt: skip
def test_what_is_not_known_is_refused(text: str) -> None:
    code = MachineCode("kernel", TARGET, written(f"{text}\nEXIT"), (), 0x380, {}, 0, 0)
    with pytest.raises(Unsupported, match="not known"):
        run_machine_code(code, [], (1,), 32)


@pytest.mark.parametrize("text", [
    "UTCHMMA.2CTA gdesc[UR6], gdesc[UR8], tmem[UR10], tmem[UR4], idesc[UR5], UP0",
    "UTCATOMSWS.2CTA.FIND_AND_SET.ALIGN UP0, UR4, UR4",
])  # fmt: skip
def test_a_block_without_another_has_no_pair(text: str) -> None:
    set_up = "UMOV UR4, 0x0\nUMOV UR5, 0x8400490" if "HMMA" in text else "UMOV UR4, 0x1"
    code = MachineCode("kernel", TARGET, written(f"{set_up}\n{text}\nEXIT"), (), 0x380, {}, 0, 4096)
    with pytest.raises(MachineFault, match="has no other"):
        run_machine_code(code, [], (1,), 32)
