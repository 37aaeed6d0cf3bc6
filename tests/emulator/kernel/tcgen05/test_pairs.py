"""tcgen05 on pairs of blocks (.cta_group::2) compared with the references, multicast commits, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, NotElementwise, OperandError, PtxError
from ptxdiff.emulator.kernel.run import load_kernel
from ptxdiff.emulator.kernel.tcgen05 import instruction_descriptors, operands
from ptxdiff.emulator.kernel.tcgen05.operands import SWIZZLES, MatrixDescriptor
from ptxdiff.references import tensor_memory_pairs as pairs
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.pair_products import COMMIT, SYNC, accumulator, of_pair, ran, run
from tests.support.emulator.tensor_products import Product, drawn, expected  # fmt: skip

PRODUCTS = [
    Product("f16", "f16", "f16", m=256, n=32), Product("f16", "bf16", "bf16", m=128, n=32),
    Product("f16", "f16", "f16", d="f16", m=128, n=32, negate=(True, False)),
    Product("tf32", "tf32", "tf32", m=256, n=16), Product("f8f6f4", "e4m3", "e5m2", m=128, n=16),
    Product("f8f6f4", "e2m1", "e3m2", m=256, n=32, negate=(False, True)),
    Product("i8", "s8", "u8", d="s32", m=256, n=32), Product("i8", "u8", "s8", d="s32", m=128, n=64, saturate=True),
    Product("f16", "f16", "f16", m=256, n=32, across=(True, True), swizzle=(2, 6)),
    Product("f16", "f16", "f16", m=128, n=32, swizzle=(4, 2)),
]  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: f"{p.kind}-{p.a}-{p.d}-{p.m}-{p.n}-{p.swizzle}")
def test_products(product: Product) -> None:
    a, b = drawn(product, 1)
    c, cells = accumulator(product, 2, 32)
    np.testing.assert_array_equal(ran(product, a, b, cells), expected(product, a, b, c))


@pytest.mark.parametrize("issuer", [0, 1])
def test_either_block_may_issue(issuer: int) -> None:
    product = PRODUCTS[1]
    a, b = drawn(product, 3)
    c, cells = accumulator(product, 4, 16)
    np.testing.assert_array_equal(ran(product, a, b, cells, issuer=issuer), expected(product, a, b, c))
    nothing = np.zeros_like(c)
    np.testing.assert_array_equal(ran(product, a, b, cells, enable=0, issuer=issuer), expected(product, a, b, nothing))


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        ("mma.cta_group::1.kind::f16.ashift [%r1], [%r2], %rd1, %r3, %p1", r"\.ashift.*; shift a by tcgen05.shift"),
    ],
)
def test_unsupported_forms_are_refused_with_an_alternative(instruction: str, words: str) -> None:
    head = ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k()"
    with pytest.raises(NotElementwise, match=words):
        load_kernel(f"{head} {{ .reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p<2>; tcgen05.{instruction}; ret; }}")


def test_a_in_tensor_memory() -> None:
    product = Product("f16", "f16", "f16", m=256, n=32, swizzle=(None, 0))
    a, b = drawn(product, 5)
    c, cells = accumulator(product, 6, 64)
    words = (a[:, ::2] | a[:, 1::2] << 16).astype(np.uint32)
    cells[0, :, 32:40], cells[1, :, 32:40] = words[:128], words[128:]
    np.testing.assert_array_equal(ran(product, a, b, cells), expected(product, a, b, c))


@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4"])
def test_shapes(kind: str) -> None:
    """Table 39: pairs have 128 or 256 rows, and certain numbers of columns."""
    names = {"f16": "f16", "tf32": "tf32", "f8f6f4": "e4m3", "i8": "s8", "mxf8f6f4": "e4m3", "mxf4": "e2m1"}
    scale = "ue8m0" if kind.startswith("mx") else ""
    product = Product(kind, names[kind], names[kind], d="s32" if kind == "i8" else "f32", scale=scale)
    for m in (32, 64, 128, 256):
        for n in range(8, 257, 8):
            if scale and m < 128:
                continue
            one = replace(product, m=m, n=n)
            found = instruction_descriptors.decoded(one.idesc, kind, False, one.block, True)
            good = m >= 128 and n in pairs.columns_taken(kind)
            assert isinstance(found, str) != good, (m, n, found)
    alone = instruction_descriptors.decoded(replace(product, m=256).idesc, kind, False, product.block)
    assert "256 rows, which a pair of blocks" in str(alone)


# planted mistakes -------------------------------------------------------------------------------------------------


def test_exchanged_blocks_give_other_bits() -> None:
    product = PRODUCTS[0]
    a, b = drawn(product, 1)
    c, cells = accumulator(product, 2, 32)
    wanted = expected(product, a, b, c)
    assert (ran(product, np.roll(a, 128, 0), b, cells) != wanted).any()
    assert (ran(product, a, np.roll(b, 16, 0), cells) != wanted).any()
    assert (ran(product, a, b, cells[::-1]) != wanted).any()


def test_a_layout_with_all_columns_in_64_lanes_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted emulator uses layout F instead of layout B."""
    product = PRODUCTS[1]
    a, b = drawn(product, 1)
    c, cells = accumulator(product, 2, 32)
    right = operands.rows_of
    monkeypatch.setattr(operands, "rows_of", lambda m, n, ws: right(m, n, ws and m != 64))
    try:
        same = (ran(product, a, b, cells) == expected(product, a, b, c)).all()
    except PtxError:
        same = False
    assert not same


# refusals ---------------------------------------------------------------------------------------------------------


def refused(change: Any, kind: type[PtxError], words: str, product: Product = PRODUCTS[0]) -> None:
    a, b = drawn(product, 1)
    _, cells = accumulator(product, 2, 32)
    with pytest.raises(kind, match=words):
        ran(product, a, b, cells, change=change)


def test_a_kernel_that_mixes_groups_is_refused() -> None:
    refused(
        lambda t: t.replace("tcgen05.dealloc.cta_group::2", "tcgen05.dealloc.cta_group::1"), OperandError,
        "all tcgen05 instructions of a kernel have the same .cta_group, and one before has .cta_group::2",
    )  # fmt: skip


def test_blocks_without_a_pair_are_refused() -> None:
    refused(
        lambda t: t.replace(f".reqnctapercluster {2}", "").replace(SYNC, "bar.sync 0;"), ExecutionError,
        r"works on a pair of blocks .* in a cluster of 1, has no other",
    )  # fmt: skip


def test_a_commit_that_arrives_at_one_block_only_is_reported() -> None:
    """The other block waits for ever."""
    one = COMMIT.replace("mov.b16 %named, 3", "mov.b16 %named, 1")
    refused(lambda t: t.replace(COMMIT, one), ExecutionError, "of parity 0 of the mbarrier at offset 16")


def test_a_mask_of_blocks_outside_the_cluster_is_refused() -> None:
    more = COMMIT.replace("mov.b16 %named, 3", "mov.b16 %named, 7")
    refused(lambda t: t.replace(COMMIT, more), ExecutionError, "mask 0x7, and its cluster has 2")


def test_a_product_before_a_barrier_of_the_cluster_is_refused() -> None:
    """No barrier of the cluster lies between the other block's stores and the product."""
    refused(lambda t: t.replace(SYNC, "bar.sync 0;"), PtxError, "which may not have begun: no barrier of the cluster")


def test_a_missing_wait_of_the_other_block_is_reported() -> None:
    """Block 1 reads its half of d without waiting."""
    skip = "\n  setp.ne.u32 %done, %rank, 0;\n  @%done bra read;\nwait:"
    refused(
        lambda t: t.replace("\nwait:", skip).replace("  tcgen05.ld.sync", "read:\n  tcgen05.ld.sync", 1), MemoryFault,
        r"of tensor memory of block \(1, 0, 0\), which the tcgen05\.mma.* still writes",
    )  # fmt: skip


def test_stores_of_the_other_block_that_no_barrier_orders_are_a_race() -> None:
    """Only a barrier of the block follows block 1's stores to its accumulator, so block 0's product may come first."""
    once = f"  tcgen05.wait::st.sync.aligned;\n  {SYNC}\n"
    assert once.count(SYNC) == 1
    refused(
        lambda t: t.replace(once, "  tcgen05.wait::st.sync.aligned;\n  bar.sync 0;\n"),
        MemoryFault,
        "race: .* another warp wrote",
    )


def test_a_barrier_of_the_cluster_may_replace_the_other_blocks_wait() -> None:
    """Block 0 waits for the commit, then both blocks meet at the barrier."""
    product = PRODUCTS[0]
    a, b = drawn(product, 1)
    c, cells = accumulator(product, 2, 32)
    one = COMMIT.replace("mov.b16 %named, 3", "mov.b16 %named, 1")
    skip = "\n  setp.ne.u32 %done, %rank, 0;\n  @%done bra behind;\nwait:"

    def change(text: str, met: str = SYNC) -> str:
        text = text.replace(COMMIT, one).replace("\nwait:", skip)
        return text.replace("  tcgen05.ld.sync", f"behind:\n  {met}\n  tcgen05.ld.sync", 1)

    np.testing.assert_array_equal(ran(product, a, b, cells, change=change), expected(product, a, b, c))
    with pytest.raises(MemoryFault, match=r"the tcgen05\.mma.* still writes"):
        ran(product, a, b, cells, change=lambda text: change(text, ""))


def test_columns_that_only_one_block_frees_are_reported() -> None:
    alone = "setp.eq.and.u32 %p1, %rank, 0, %warp0;\n  @%p1 tcgen05.dealloc"
    refused(
        lambda t: t.replace("@%warp0 tcgen05.dealloc", alone), ExecutionError,
        r"block \(1, 0, 0\) ends with 64 columns of tensor memory that no tcgen05.dealloc has freed",
    )  # fmt: skip


def test_an_allocation_by_one_block_of_the_pair_is_reported() -> None:
    body = "  setp.eq.and.u32 %p1, %rank, 0, %warp0;\n"
    text = of_pair(tm.text(body, 0, columns=32), 0, 0)
    for name in ("alloc", "dealloc"):
        text = text.replace(f"@%warp0 tcgen05.{name}.", f"@%p1 tcgen05.{name}.")
    text = text.replace("  @%p1 tcgen05.alloc", f"{body}  @%p1 tcgen05.alloc")
    text = text.replace("ld.shared.b32 %base, [smem];", "mov.b32 %base, 480;")
    with pytest.raises(ExecutionError, match=r"32 columns .* for a pair .* no warp of block \(1, 0, 0\) takes part"):
        run(text, np.zeros(1, np.uint32), np.zeros(1, np.uint32))


def test_the_address_of_columns_that_the_other_block_allocated_is_undefined() -> None:
    alone = "@%warp0 tcgen05.alloc"
    refused(
        lambda t: t.replace(alone, "  setp.eq.and.u32 %p1, %rank, 0, %warp0;\n  @%p1 tcgen05.alloc"), PtxError,
        "undefined bits reach the address in tensor memory",
    )  # fmt: skip


def test_different_numbers_of_columns_in_a_pair_are_reported() -> None:
    text = "[smem], 64;"
    refused(
        lambda t: t.replace(text, "[smem], %r5;").replace(
            "  @%warp0 tcgen05.alloc", "  shl.b32 %r5, 32, %rank;\n  @%warp0 tcgen05.alloc"
        ), ExecutionError, "allocates 64 columns for a pair of blocks, whose other warp has asked for 32",
    )  # fmt: skip


# copies -----------------------------------------------------------------------------------------------------------


def test_each_block_copies_from_its_own_shared_memory() -> None:
    rng = np.random.default_rng(5)
    data = rng.integers(0, 1 << 32, (2, 128 * 4), dtype=np.uint64).astype(np.uint32)
    code = MatrixDescriptor(tm.BASE + tm.DATA, 128, 128, SWIZZLES[0]).code
    body = f"  mov.b64 %a, {code};\n  @%first tcgen05.cp.cta_group::1.128x128b [%base], %a;\n{tm.waited()}"
    body += f"  tcgen05.ld.sync.aligned.32x32b.x4.b32 {tm.registers(10, 4)}, [%own];\n"
    body += f"  tcgen05.wait::ld.sync.aligned;\n{tm.stored(4)}"
    text = of_pair(tm.text(body, 512, columns=32), 512, 512).replace("@%first tcgen05.cp", "@%issuer tcgen05.cp")
    out = run(text, data.reshape(-1), np.zeros(1024, np.uint32)).reshape(2, 128, 4)
    np.testing.assert_array_equal(out, data.reshape(2, 128, 4))


def test_multicast_commits_without_a_pair() -> None:
    """With .cta_group::1 a commit may arrive at mbarriers of several blocks too."""
    code = MatrixDescriptor(tm.BASE + tm.DATA, 128, 128, SWIZZLES[0]).code
    commit = COMMIT.replace("cta_group::2", "cta_group::1").replace("%issuer", "%first")
    body = f"  mov.b64 %a, {code};\n  @%first tcgen05.cp.cta_group::1.128x128b [%base], %a;\n{tm.waited('COMMIT')}"
    body += f"  tcgen05.ld.sync.aligned.32x32b.x4.b32 {tm.registers(10, 4)}, [%own];\n"
    body += f"  tcgen05.wait::ld.sync.aligned;\n{tm.stored(4)}"
    text = of_pair(tm.text(body, 512, columns=32), 512, 512).replace("cta_group::2", "cta_group::1")
    text = text.replace("[smem+16], 1;", "[smem+16], 2;").replace("COMMIT", commit)
    data = np.arange(1024, dtype=np.uint32)
    out = run(text, data, np.zeros(1024, np.uint32)).reshape(2, 128, 4)
    np.testing.assert_array_equal(out.reshape(-1), data)


@pytest.mark.parametrize("warp", [0, 1])
def test_a_warps_own_stores_need_no_barrier_in_a_cluster(warp: int) -> None:
    """Thread 0 copies to cells to which its own warp or another one stored; without a barrier the latter is a race."""
    code = MatrixDescriptor(tm.BASE + tm.DATA, 128, 128, SWIZZLES[0]).code
    body = f"  mov.b64 %a, {code};\n  setp.eq.u32 %p2, %warp, {warp};\n"
    body += f"  @%p2 tcgen05.st.sync.aligned.32x32b.x4.b32 [%own], {tm.registers(20, 4)};\n"
    body += "  tcgen05.wait::st.sync.aligned;\n"
    body = "".join(f"  mov.b32 %r{i}, 0;\n" for i in range(20, 24)) + body
    body += f"  @%first tcgen05.cp.cta_group::1.128x128b [%base], %a;\n{tm.waited('COMMIT')}"
    body += f"  tcgen05.ld.sync.aligned.32x32b.x4.b32 {tm.registers(10, 4)}, [%own];\n"
    body += f"  tcgen05.wait::ld.sync.aligned;\n{tm.stored(4)}"
    text = of_pair(tm.text(body, 512, columns=32), 512, 512).replace("cta_group::2", "cta_group::1")
    text = text.replace("COMMIT", tm.COMMIT)
    data = np.arange(1024, dtype=np.uint32)
    if warp:
        with pytest.raises(MemoryFault, match=r"race: .* which another warp wrote"):
            run(text, data, np.zeros(1024, np.uint32))
    else:
        np.testing.assert_array_equal(run(text, data, np.zeros(1024, np.uint32)), data)
