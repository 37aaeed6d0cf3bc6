"""Bugs in Triton kernels that `ptxdiff.emulated` finds: it reports the PTX and the line of the Triton source."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

from ptxdiff import Case, emulated, kernel
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.emulator.errors import MemoryFault, PtxError, UndefinedBits
from ptxdiff.launcher import LaunchError
from ptxdiff.model.load import LoadedCase
from ptxdiff.references.formats import U8
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from tests.support import mistaken_kernels as k

TARGETS = ["sm_80", "sm_90a", "sm_100a"]
FILE = Path(k.__file__)
RACE = r"race: thread \d+ of block \(\d+, 0, 0\) "


def here(kernel: Any) -> str:
    """`file:line` of the line that is marked HERE in a kernel."""
    lines, first = inspect.getsourcelines(kernel.fn)
    at = next(i for i, line in enumerate(lines) if "# HERE" in line)
    return f"{FILE}:{first + at}"


def caught(
    kind: type[PtxError], kernel: Any, target: str, grid: int, *args: Any, words: str, ptx: str, **meta: Any
) -> None:
    """Check that the launch fails with these words, at an instruction with this PTX, from the kernel's marked line."""
    with pytest.raises(kind, match=words) as found:
        emulated(kernel, target)[(grid,)](*args, **meta)
    assert here(kernel) in str(found.value)
    assert str(found.value).startswith("line "), "the line of the PTX"
    assert ptx in found.value.source


def numbers(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


@pytest.mark.parametrize("target", TARGETS)
class TestFiveBugs:
    def test_a_store_out_of_range_because_of_a_wrong_mask(self, target: str) -> None:
        words = "4 bytes at offset 4000 of y, which has 4000 bytes"
        x = numbers(1000)
        caught(MemoryFault, k.wrong_mask, target, 4, x, 0 * x, 1000, B=256, words=words, ptx="st.global")

    def test_a_pack_that_mixes_neighbours(self, target: str) -> None:
        """64 elements on 128 threads: half of each pack of two is padding."""
        x = np.arange(64, dtype=np.int16)
        words = "undefined bits reach a store to y"
        caught(UndefinedBits, k.mixed_neighbours, target, 1, x, 0 * x, 64, B=64, words=words, ptx="st.global")

    def test_asm_that_reads_more_registers_than_its_constraints_name(self, target: str) -> None:
        """LLVM aborts its process; the launch reports that, and this process survives."""
        x = numbers(64)
        with pytest.raises(LaunchError, match=r"too_many_registers .*does not compile.*(operand|\$2|asm)"):
            emulated(k.too_many_registers, target)[(1,)](x, 0 * x, 64, B=64)
        words = "undefined bits reach a store to y"
        caught(UndefinedBits, k.undeclared_register, target, 1, x, 0 * x, 64, B=64, words=words, ptx="add.s32")

    def test_shared_memory_that_was_never_written(self, target: str) -> None:
        x = numbers(128)
        words = "undefined bits reach a store to y"
        caught(UndefinedBits, k.unwritten_shared, target, 1, x, 0 * x, B=128, words=words, ptx="ld.shared")

    def test_a_missing_barrier(self, target: str) -> None:
        x = numbers(128)
        words = RACE + "reads shared memory at offset \\d+, which another thread wrote, and no barrier lies between"
        caught(MemoryFault, k.no_barrier, target, 1, x, 0 * x, B=128, words=words, ptx="ld.shared")


@pytest.mark.parametrize("target", TARGETS)
class TestDefinedness:
    """Undefined bits may flow; they are reported when they reach a store, an address, a branch or another element."""

    def test_undefined_bits_that_a_mask_does_not_store_are_not_reported(self, target: str) -> None:
        x, y = numbers(40), np.full(40, -1, np.int32)
        emulated(k.unwritten_tail, target)[(1,)](x, y, 40, B=64)
        np.testing.assert_array_equal(y, x)

    def test_a_branch(self, target: str) -> None:
        x = numbers(64)
        words = "the branch depends on undefined bits"
        caught(UndefinedBits, k.undefined_branch, target, 1, x, 0 * x, 64, B=64, words=words, ptx="bra")

    def test_an_address(self, target: str) -> None:
        x = numbers(64)
        words = "undefined bits reach an address"
        caught(UndefinedBits, k.undefined_address, target, 1, x, numbers(70), 64, B=64, words=words, ptx="and.b32")

    def test_the_asm_that_leaves_undefined_bits_is_named_and_not_the_store(self, target: str) -> None:
        words = "reach a store to y in thread \\d+ of block .* at line \\d+; this instruction leaves them undefined"
        caught(UndefinedBits, k.undefined_in_asm, target, 1, numbers(64), numbers(64), B=64, words=words, ptx="add.u32")


@pytest.mark.parametrize("target", TARGETS)
class TestRacesOnGlobalMemory:
    def test_write_after_read(self, target: str) -> None:
        words = RACE + "overwrites x at offset \\d+, which thread \\d+ of block \\(0, 0, 0\\) read, and nothing orders"
        caught(MemoryFault, k.shifted_in_place, target, 1, numbers(128), 128, B=128, words=words, ptx="st.global")
        x = numbers(128)
        emulated(k.shifted_behind_a_barrier, target)[(1,)](x, 128, B=128)
        np.testing.assert_array_equal(x, (numbers(128) ^ 64) + 1)

    def test_write_after_read_between_blocks(self, target: str) -> None:
        words = RACE + "overwrites x at offset \\d+, which (other blocks|thread 127 of block \\(\\d, 0, 0\\)) read"
        caught(MemoryFault, k.halo_in_place, target, 4, numbers(512), 512, B=128, words=words, ptx="st.global")

    def test_write_after_write_between_blocks(self, target: str) -> None:
        words = RACE
        y = np.zeros(256, np.int32)
        caught(MemoryFault, k.rows_that_overlap, target, 3, numbers(128), y, B=128, words=words, ptx="st.global")

    def test_write_after_write(self, target: str) -> None:
        words = RACE + "overwrites y at offset \\d+, which thread \\d+ of block \\(0, 0, 0\\) wrote, and nothing orders"
        x = numbers(128)
        caught(MemoryFault, k.written_twice, target, 1, x, 0 * x, B=128, words=words, ptx="st.global")

    def test_read_after_write(self, target: str) -> None:
        words = RACE + "reads s at offset \\d+, which thread \\d+ of block \\(0, 0, 0\\) wrote, and nothing orders"
        x = numbers(128)
        caught(MemoryFault, k.read_after_write, target, 1, x, 0 * x, 0 * x, B=128, words=words, ptx="ld.global")

    @pytest.mark.parametrize("block", [32, 64, 256])
    def test_replicated_elements_changed_in_place_are_no_race(self, target: str, block: int) -> None:
        x, p = numbers(500), np.zeros(16, np.int32)
        emulated(k.updated_in_place, target)[(-(-500 // block),)](x, p, 500, B=block)
        np.testing.assert_array_equal(x, 2 * numbers(500))
        assert p.sum() == -(-500 // block)

    def test_the_check_of_races_can_be_switched_off(self, target: str) -> None:
        x = numbers(128)
        emulated(k.shifted_in_place, target, races=False)[(1,)](x, 128, B=128)
        np.testing.assert_array_equal(x, (numbers(128) ^ 64) + 1)


def test_an_input_that_a_kernel_overwrites_is_a_finding():
    """The kernel's outputs are right, but later kernels get wrong inputs."""
    case = Case(
        inputs={"x": U8},
        outputs={"y": U8},
        reference=lambda x: x,
        variants={"v": kernel(k.changed_input, grid=lambda s: (s["n"] // s["B"] + 1,), meta={"B": 256})},
    )
    item = Item(LoadedCase(case, "c", "case", FILE, ""), "v", "sm_90a", "emulator")
    found = run_item(item, EmulatorBackend(), "quick")
    assert found.verdict == "fail"
    assert all("x is an input and" in r.findings[0] and "were overwritten" in r.findings[0] for r in found.results)
