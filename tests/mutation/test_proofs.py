"""Survivors that machine code and the search leave open: proofs settle them, or give the input."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff import Case, asm
from ptxdiff.model.load import LoadedCase, load
from ptxdiff.mutation import settle, source
from ptxdiff.mutation.asm import AsmMutant
from ptxdiff.mutation.kernels import InlineMutant, settle_inline
from ptxdiff.mutation.settle import Search, Settlement, settle_reference
from ptxdiff.mutation.source import SourceMutant
from ptxdiff.mutation.trial import Subject
from ptxdiff.proving.equivalence import prove_kernels
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32, U32
from ptxdiff.triton.spec import AsmSwap
from tests.support.proving.machine_code import THREADS, kernel

FEW = Search(8, 1 << 10, 20.0)


def largest(a: Any, b: Any) -> Any:
    return torch.maximum(a, b)


def largest_too(a: Any, b: Any) -> Any:
    return torch.where(a >= b, a, b)


def largest_but_once(a: Any, b: Any) -> Any:
    found = torch.maximum(a, b)
    return torch.where((a == 0x2545F491) & (b == 0x1B873593), found ^ 1, found)


def settled(reference: Any, function: Any, code: Callable[..., Any], text: str, fmt: Any = U32) -> Settlement:
    """The settlement of a mutant that gives a function other code. text: of the variant that passes unchanged."""
    case = Case(
        inputs={"a": fmt, "b": fmt}, outputs={"y": fmt}, reference=reference,
        variants={"asm": asm(text, "=r,r,r", pack=1)}, source="made for this test",
    )  # fmt: skip
    subject = Subject(LoadedCase(case, "case", "case", Path("case.py"), ""), "sm_90a", 60.0)
    mutant = SourceMutant("planted", "planted", function, code.__code__, range(1), source.caches(reference))
    (found,) = settle_reference(subject, ["asm"], reference, [mutant], FEW)
    return found


def test_a_mutant_of_a_reference_with_the_same_codes_is_proved() -> None:
    found = settled(largest, largest, largest_too, "max.u32 $0, $1, $2;")
    assert found.fate == "equivalent"
    assert found.words.startswith("the same codes for all inputs, proved")


def test_a_mutant_of_a_reference_that_is_wrong_for_one_input_of_2_64_gets_it() -> None:
    found = settled(largest, largest, largest_but_once, "max.u32 $0, $1, $2;")
    assert found.fate == "missed"
    assert dict(found.edge) == {"a": "0x2545f491", "b": "0x1b873593"}


def summed(a: Any, b: Any) -> Any:
    return arithmetic.add(a, b)


def summed_but_once(a: Any, b: Any, *, fmt: Any = F32, rounding: Any = "rn", ftz: Any = False) -> Any:
    """The code of `arithmetic.add`, whose names it has, and a mistake."""
    left, right = _exact(fmt, a, ftz), _exact(fmt, b, ftz)  # type: ignore[name-defined]  # noqa: F821
    total = _zero_sign(odd_sum(left, right), left, right, rounding)  # type: ignore[name-defined]  # noqa: F821
    found = round_float64(fmt, total, rounding=rounding, ftz=bool(ftz))  # type: ignore[name-defined]  # noqa: F821
    return torch.where((a == 0x3FB504F3) & (b == 0x402DF854), found ^ 1, found)


@pytest.mark.parametrize("aware", [True, False])
def test_a_mutant_of_what_proofs_summarise_is_no_summary(aware: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof with summaries would replace the changed function, and call its mutant equivalent."""
    if not aware:
        monkeypatch.setattr(settle, "_may_have_summary", lambda mutant: False)
    code = arithmetic.add.__code__
    found = settled(summed, arithmetic.add, summed_but_once, "add.rn.f32 $0, $1, $2;", F32)
    assert (found.fate == "equivalent") == (not aware)
    assert arithmetic.add.__code__ is code
    if aware:
        assert found.fate == "missed", found
        assert dict(found.edge) == {"a": "0x3fb504f3", "b": "0x402df854"}


@functools.cache
def bits() -> int:
    return 7


def other_bits() -> int:
    return 5


def masked(a: Any, b: Any) -> Any:
    return a & bits()


def test_a_cached_function_does_not_hide_its_mutant() -> None:
    assert masked(15, 0) == 7
    assert source.caches(masked) == (bits,)
    found = settled(masked, bits.__wrapped__, other_bits, "and.b32 $0, $1, 7;")
    assert found.fate == "missed"
    assert masked(15, 0) == 7


INLINE = '''
"""Asm in a Triton function."""

import triton
import triton.language as tl

from ptxdiff import Case, plain
from ptxdiff.references.formats import U32

TEXT = tl.constexpr("{ .reg .b32 t; shl.b32 t, $1, 16; and.b32 $0, $2, 65535; or.b32 $0, t, $0; }")


@triton.jit
def joined(a, b):
    return tl.inline_asm_elementwise(TEXT, "=&r,r,r", [a, b], dtype=tl.uint32, is_pure=True, pack=1)


case = Case(
    inputs={"a": U32, "b": U32}, outputs={"y": U32}, reference=lambda a, b: (a << 16 & 0xFFFFFFFF) | (b & 65535),
    variants={"triton": plain(joined)}, source="made for this test",
)
'''
TEXT = "{ .reg .b32 t; shl.b32 t, $1, 16; and.b32 $0, $2, 65535; or.b32 $0, t, $0; }"
ONCE = """{ .reg .b32 t; .reg .pred p; shl.b32 t, $1, 16; setp.eq.u32 p, $1, 0x2545F491;
    setp.eq.and.u32 p, $2, 0x1B873593, p; and.b32 $0, $2, 65535; or.b32 $0, t, $0; @p xor.b32 $0, $0, 1; }"""


@pytest.mark.slow
def test_mutants_of_asm_in_a_triton_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxdiff.mutation.kernels.machine_code", lambda subject, name: None)
    (tmp_path / "inline_case.py").write_text(INLINE)
    (loaded,) = load(tmp_path / "inline_case.py")
    subject = Subject(loaded, "sm_90a", 60.0)
    swaps = [(TEXT.replace("or.b32", "xor.b32"), "=&r,r,r"), (ONCE, "=&r,r,r"), (TEXT, "=r,r,r")]
    mutants = [
        InlineMutant(AsmMutant("planted", "planted", text, c), AsmSwap(TEXT, "=&r,r,r", text, c)) for text, c in swaps
    ]
    same, once, shared = settle_inline(subject, "triton", mutants, FEW)
    assert same.fate == "equivalent", same
    assert same.words.startswith("the same stores in every thread, for all inputs, proved")
    assert once.fate == "missed", once
    assert dict(once.edge) == {"a": "0x2545f491", "b": "0x1b873593"}
    assert shared.fate == "equivalent", shared
    assert shared.words == "no sharing of registers changes a bit for any input, proved"


JOINED = kernel("shl.b32 %r1, %a, 16; and.b32 %r2, %b, 65535; or.b32 %y, %r1, %r2;")
CONTRACTED = kernel("mul.f32 %r1, %a, %b; add.f32 %y, %r1, %b;")
GUARDED = kernel("setp.lt.u32 %q0, %i, 7; mov.u32 %y, 0; @%q0 ld.global.b32 %y, [%pa + 128];")
KERNELS: dict[str, tuple[str, str, bool]] = {
    "another spelling": (JOINED, JOINED.replace("or.b32", "xor.b32"), True),
    "other operands": (CONTRACTED, CONTRACTED.replace("mul.f32 %r1, %a, %b", "mul.f32 %r1, %b, %a"), True),
    "another bit": (JOINED, JOINED.replace("65535", "65534"), False),
    "one word of 2^32": (
        JOINED, JOINED.replace("or.b32", "setp.eq.u32 %q0, %a, 9; @%q0 not.b32 %r2, %r2; or.b32"), False,
    ),
    "another rounding": (CONTRACTED, CONTRACTED.replace("add.f32", "add.rn.f32"), False),
    "an undefined bit": (JOINED, JOINED.replace("or.b32 %y, %r1, %r2", "or.b32 %y, %r1, %r3"), False),
    "another address": (JOINED, JOINED.replace("add.u64 %py, %py, %o", "add.u64 %py, %py, 4"), False),
    "a load that is not masked": (GUARDED, GUARDED.replace(
        "@%q0 ld.global.b32 %y, [%pa + 128];", "ld.global.b32 %r1, [%pa + 128]; @%q0 mov.u32 %y, %r1;"), False),
    "a missing barrier": (JOINED.replace("or.b32", "bar.warp.sync 0xffffffff; or.b32"), JOINED, False),
    "a missing fence": (JOINED.replace("or.b32", "membar.gl; or.b32"), JOINED, False),
    "nothing stored": (JOINED, JOINED.replace("st.global.b32 [%py], %y;", ""), False),
    "one thread of 32": (
        JOINED, JOINED.replace("or.b32", "setp.eq.u32 %q0, %i, 31; @%q0 not.b32 %r2, %r2; or.b32"), False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_equivalent_only_if_they_store_the_same(name: str) -> None:
    one, other, same = KERNELS[name]
    found = prove_kernels((one, other), None, (THREADS, 1, 1), seconds=20.0)
    assert (found.verdict == "proved") == same, found
    if same:
        assert prove_kernels((other, one), None, (THREADS, 1, 1), seconds=20.0).verdict == "proved"
