"""Every form of mma in a whole kernel compared with the reference; fragments have the ISA's layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ptxdiff.conformance import ledger, product_forms, products
from ptxdiff.emulator.errors import ExecutionError, OperandError, PtxError, UndefinedBits
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, F64, I8, I32, TF32, U8
from tests.support.emulator.isa_fragments import A_QUADS, B_QUADS, C_QUADS, A, B, C, Where

FORMATS = {"f16": F16, "bf16": BF16, "tf32": TF32, "f32": F32, "e4m3": E4M3, "e5m2": E5M2}
FORMATS |= {"e3m2": E3M2, "e2m3": E2M3, "e2m1": E2M1, "f64": F64}
BITS = {"f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4, "b1": 1}
COUNT = 2 * len(products.KINDS)


class Tiles:
    """Converts an operand's registers (tiles x registers x lanes) to matrices of codes, and matrices to registers."""

    def __init__(self, where: Where, rows: int, columns: int, bits: int, quads: bool) -> None:
        self.where, self.rows, self.columns, self.bits, self.quads = where, rows, columns, bits, quads

    def _places(self, count: int) -> Any:
        each = max(32 // self.bits, 1)
        for lane in range(32):
            for i in range(count * each):
                row, column = self.where(lane, i)
                yield lane, i // each, i % each * self.bits, lane % 16 // 4 if self.quads else 0, row, column

    def matrices(self, registers: np.ndarray) -> np.ndarray:
        tiles, count, _ = registers.shape
        found = np.zeros((tiles, 4 if self.quads else 1, self.rows, self.columns), np.uint64)
        for lane, register, shift, tile, row, column in self._places(count):
            code = registers[:, register, lane].astype(np.uint64) >> np.uint64(shift)
            found[:, tile, row, column] = code & np.uint64((1 << self.bits) - 1)
        return found.reshape(-1, self.rows, self.columns)

    def registers(self, matrices: np.ndarray, count: int) -> np.ndarray:
        table = matrices.reshape(-1, 4 if self.quads else 1, self.rows, self.columns)
        found = np.zeros((len(table), count, 32), np.uint64)
        for lane, register, shift, tile, row, column in self._places(count):
            found[:, register, lane] |= table[:, tile, row, column] << np.uint64(shift)
        return found


def generation(target: str) -> tensor_core.Generation:
    number = int(target.removeprefix("sm_").rstrip("af"))
    named = {
        70: tensor_core.VOLTA, 75: tensor_core.TURING, 80: tensor_core.AMPERE, 89: tensor_core.ADA,
        90: tensor_core.HOPPER, 100: tensor_core.BLACKWELL,
    }  # fmt: skip
    return named[max(n for n in named if n <= number)]


def expected(bound: Bound, target: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The reference's codes of one tile of d."""
    chosen = bound.modifiers
    if "atype" not in chosen:
        return tensor_core.dot_bits(a, b, c, operation=chosen["op"], to=I32)
    d_type, a_type, b_type, c_type = (chosen[n] or "" for n in ("dtype", "atype", "btype", "ctype"))
    if a_type == "f64":
        return tensor_core.dot_double(a, b, c, rounding=chosen["rnd"] or "rn")
    if d_type == "s32":
        # The reference needs the 8-bit code of the number that a 4-bit code stands for.
        a, b = (x | (0xF0 * (x >> 3)) if t == "s4" else x for x, t in ((a, a_type), (b, b_type)))
        formats = {"a_format": I8 if a_type[0] == "s" else U8, "b_format": I8 if b_type[0] == "s" else U8}
        return tensor_core.dot_integer(a, b, c, **formats, to=I32, saturate=bool(chosen["satfinite"]))
    c_format, d_format = FORMATS[c_type], FORMATS[d_type]
    if "alayout" in chosen and target not in ("sm_70", "sm_75"):
        return tensor_core.dot_of_quads(a, b, c, c_format=c_format, d_format=d_format)
    known = tensor_core.VOLTA if "alayout" in chosen else generation(target)
    a, b = (_code(x, t) for x, t in ((a, a_type), (b, b_type)))
    formats = {"a_format": FORMATS[a_type], "b_format": FORMATS[b_type], "d_format": d_format}
    if a_type in ("e4m3", "e5m2") and 90 <= int(target[3:].rstrip("af")) < 120:
        return tensor_core.dot_of_bytes(a, b, c, **formats, generation=known)
    return tensor_core.dot(a, b, c, **formats, c_format=c_format, generation=known)


def _code(codes: torch.Tensor, kind: str) -> torch.Tensor:
    """The codes in bytes of kind::f8f6f4: e2m1 lies in bits 2 to 5, formats of six bits in the low bits."""
    return codes >> 2 & 15 if kind == "e2m1" else codes & 63 if kind in ("e3m2", "e2m3") else codes


def layouts(bound: Bound) -> list[Tiles]:
    chosen = bound.modifiers
    m, rest = (chosen["shape"] or "")[1:].split("n")
    n, k = rest.split("k")
    m, n, k = int(m), int(n), int(k)
    names = ("dtype", "atype", "btype", "ctype")
    types = [chosen[x] or "" for x in names] if "atype" in chosen else ["s32", "b1", "b1", "s32"]
    d, a, b, c = (BITS.get(t, 8) for t in types)
    if "alayout" in chosen:
        return [
            Tiles(C_QUADS[d], 8, 8, d, True), Tiles(A_QUADS[chosen["alayout"] or ""], 8, 4, a, True),
            Tiles(B_QUADS[chosen["blayout"] or ""], 4, 8, b, True), Tiles(C_QUADS[c], 8, 8, c, True),
        ]  # fmt: skip
    return [
        Tiles(C[m], m, n, d, False), Tiles(A[m, k, a], m, k, a, False), Tiles(B[k, b], k, n, b, False),
        Tiles(C[m], m, n, c, False),
    ]  # fmt: skip


def differing(form: str, target: str, count: int = COUNT) -> list[str]:
    """The kinds of the tiles in which the emulator and the reference differ."""
    bound = product_forms.bounds_of()[form]
    known = products.program(form, target)
    operands = products.tiles(form, target, 0, count)
    got = products.emulated(known, operands)
    places = layouts(bound)
    matrices = [p.matrices(x).view(np.int64) for p, x in zip(places[1:], operands, strict=True)]
    rows = zip(*(torch.from_numpy(x) for x in matrices), strict=True)
    wanted = torch.stack([expected(bound, target, a, b, c) for a, b, c in rows]).numpy()
    mask = np.int64(-1 if places[0].bits == 64 else (1 << places[0].bits) - 1)
    registers = places[0].registers((wanted & mask).view(np.uint64), got.shape[1])
    if places[0].bits == 64:  # the reference does not define NaN payloads; the emulator has an H200's
        registers, got = (np.where(np.isnan(x.view(np.float64)), 0, x) for x in (registers, got))
    return [products.KINDS[i % len(products.KINDS)] for i in np.flatnonzero((registers != got).any(axis=(1, 2)))]


FORMS = {name: bound for name, bound in product_forms.bounds_of().items() if bound.form.operation == "mma"}
QUICK = [f for i, f in enumerate(FORMS) if i % 9 == 0 or any(t in f for t in ("bf16", "tf32", "f16.f16", "b1"))]


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", [pytest.param(f, marks=() if f in QUICK else pytest.mark.slow) for f in FORMS])
def test_the_emulator_and_the_reference_agree(form: str) -> None:
    """Slow: all forms take a minute."""
    assert differing(form, product_forms.target_of(FORMS[form])) == []


F16_F32 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TF32_F32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
F8_F32 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"
VOLTA = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("form", "targets"),
    [
        (F16_F32, ["sm_80", "sm_86", "sm_89", "sm_100a", "sm_120a"]),
        (TF32_F32, ["sm_80", "sm_89", "sm_120a"]),
        (F8_F32, ["sm_89", "sm_90a", "sm_100a", "sm_120a"]),
        (VOLTA, ["sm_70", "sm_75", "sm_80", "sm_90a"]),
        ("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", ["sm_75", "sm_80", "sm_90a"]),
    ],
)
def test_every_generation_has_its_arithmetic(form: str, targets: list[str]) -> None:
    for target in targets:
        assert differing(form, target) == [], target


def test_generations_differ() -> None:
    """If one row of the table gave the bits of all generations, the test above would prove nothing."""
    operands = products.tiles(F16_F32, "sm_90a", 0, COUNT)
    ampere, hopper = (products.emulated(products.program(F16_F32, t), operands) for t in ("sm_80", "sm_90a"))
    assert (ampere != hopper).any()


# mistakes ---------------------------------------------------------------------------------------------------


def run(text: str, operands: list[np.ndarray], defined: bool = True) -> np.ndarray:
    result = np.zeros((len(operands[0]), 4, 32), np.uint32)
    buffers = [Buffer(x, n, defined=defined or n != "a") for x, n in zip(operands, "abc", strict=True)]
    run_kernel(text, [*buffers, Buffer(result, "d"), len(result)], (-(-len(result) // 4),), num_threads=128)
    return result


def test_undefined_bits_of_a_row_reach_only_the_results_of_that_row() -> None:
    text = products.program(F16_F32, "sm_90a").text
    operands = products.tiles(F16_F32, "sm_90a", 0, 4)
    with pytest.raises(UndefinedBits, match="reach a store to d"):
        run(text, operands, defined=False)
    # Registers of a's rows 8 to 15 stay undefined; only rows 0 to 7 of d are stored.
    lines = text.splitlines()
    loads = [i for i, line in enumerate(lines) if "ld.global" in line]
    stores = [i for i, line in enumerate(lines) if "st.global" in line]
    remaining = [line for i, line in enumerate(lines) if i not in (loads[3], *stores[2:])]
    run("\n".join(remaining), operands)
    with pytest.raises(UndefinedBits, match="reach a store to d"):
        run("\n".join(line for i, line in enumerate(lines) if i != loads[3]), operands)


def test_a_product_by_a_part_of_a_warp_is_refused() -> None:
    text = products.program(F16_F32, "sm_90a").text
    torn = text.replace("  mma.sync", "  setp.eq.u32 %p, %r3, 7; @!%p mma.sync")
    with pytest.raises(ExecutionError, match="needs all 32 threads of a warp"):
        run(torn, products.tiles(F16_F32, "sm_90a", 0, 4))


def test_warps_without_the_product_keep_their_registers() -> None:
    text = products.program(F16_F32, "sm_90a").text
    operands = products.tiles(F16_F32, "sm_90a", 1, 4)
    whole = run(text, operands)
    some = text.replace("  mma.sync", "  mov.b32 %x0, 7; mov.b32 %x1, 7; mov.b32 %x2, 7; mov.b32 %x3, 7;\n"
                        "  and.b32 %r4, %r2, 1; setp.eq.u32 %p, %r4, 1; @%p mma.sync")  # fmt: skip
    found = run(some, operands)
    np.testing.assert_array_equal(found[1::2], whole[1::2])
    assert (found[::2] == 7).all()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ((".row.col.", ".col.row."), OperandError, "a is .row and b is .col"),
        (("m16n8k16", "m16n8k4"), PtxError, "has no form with these modifiers"),
        ((".f16.f16.", ".f16.bf16."), PtxError, "has no form with these modifiers"),
        (("%x4, %x5, ", "%x4, "), OperandError, "4"),
    ],
)
def test_what_ptxas_refuses_is_refused(change: tuple[str, str], error: type[PtxError], words: str) -> None:
    text = products.program(F16_F32, "sm_90a").text
    with pytest.raises(error, match=words):
        run(text.replace(*change), products.tiles(F16_F32, "sm_90a", 0, 4))


@pytest.mark.parametrize(
    ("form", "target", "name"),
    [
        (F16_F32, "sm_90a", F16_F32),
        (F16_F32, "sm_80", f"{F16_F32} (Ampere)"),
        (F8_F32, "sm_120a", f"{F8_F32} (RTX Blackwell)"),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_80", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"),
    ],
)
def test_evidence_of_hopper_confirms_no_other_generation(form: str, target: str, name: str) -> None:
    kernel = load_kernel(products.program(form, target).text)
    assert name in kernel.analysis.forms
    assert ledger.confirmed([name]) == (name == form)
