"""What inputs show, and that no name changes them: neither that of a case nor those of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxdiff import Case, asm, emulate, kernel
from ptxdiff.inputs import constant_sets, input_sets
from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.inputs.kernel_sets import sets_for
from ptxdiff.inputs.sets import stratified
from ptxdiff.model.case import Case as CaseDeclaration
from ptxdiff.model.match import Domain
from ptxdiff.model.variants import AsmVariant
from ptxdiff.references.formats import BF16, F16, F32, I32, U8, U32, Format, Scalar

pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

HEAD = "{ .reg .pred p, q; .reg .b32 t, u; .reg .f32 f, g; .reg .b16 h; "
WRONG = "@p xor.b32 $0, $0, 1; }"


def where(condition: str, right: str = "mov.b32 $0, $1; ") -> tuple[str, str]:
    """Right code, and code that is wrong where a condition sets p."""
    return f"{HEAD}{right}}}", f"{HEAD}{right}{condition}{WRONG}"


def instead(right: str, wrong: str) -> tuple[str, str]:
    return f"{HEAD}{right} }}", f"{HEAD}{wrong} }}"


HALF = "cvt.{}.f16.f32 h, $1; cvt.u32.u16 $0, h;"
PLANTS: dict[str, tuple[tuple[Format, ...], tuple[str, str]]] = {
    "toward zero for to nearest": ((F32, F32), instead("add.rn.f32 $0, $1, $2;", "add.rz.f32 $0, $1, $2;")),
    "upwards for to nearest": ((F32, F32), instead("mul.rn.f32 $0, $1, $2;", "mul.rp.f32 $0, $1, $2;")),
    "two roundings for one": (
        (F32, F32, F32),
        instead("fma.rn.f32 $0, $1, $2, $3;", "mul.rn.f32 f, $1, $2; add.rn.f32 $0, f, $3;"),
    ),
    "subnormals flushed": ((F32, F32), instead("mul.rn.f32 $0, $1, $2;", "mul.rn.ftz.f32 $0, $1, $2;")),
    "the sign of zero lost": ((F32,), instead("neg.f32 $0, $1;", "sub.f32 $0, 0f00000000, $1;")),
    "NaN as zero": ((F32, F32), instead("max.NaN.f32 $0, $1, $2;", "max.f32 $0, $1, $2;")),
    "a tie away from zero": (
        (F32,),
        where("and.b32 t, $1, 0x1fff; setp.eq.u32 p, t, 0x1000; and.b32 u, $1, 0x2000; setp.eq.and.u32 p, u, 0, p; ",
              HALF.format("rn")),
    ),
    "a conversion toward zero": ((F32,), instead(HALF.format("rn"), HALF.format("rz"))),
    "the largest finite value": ((F32,), where("and.b32 t, $1, 0x7fffffff; setp.eq.u32 p, t, 0x7f7fffff; ")),
    "the smallest normal value": ((F32,), where("setp.eq.u32 p, $1, 0x00800000; ")),
    "one number of the code": ((U32,), where("setp.eq.u32 p, $1, 0x12345; ")),
    "just above a number of the code": ((F32,), where("sub.u32 t, $1, 1; setp.eq.u32 p, t, 0x40490fdb; ")),
    "the smallest integer": ((I32,), where("setp.eq.s32 p, $1, -2147483648; ")),
    "equal operands": ((U32, U32), where("setp.eq.u32 p, $1, $2; ", "sub.u32 $0, $1, $2; ")),
    "operands whose sum is zero": ((F32, F32), where("add.f32 f, $1, $2; setp.eq.f32 p, f, 0f00000000; ")),
    "a sum that overflows": ((I32, I32), instead("add.sat.s32 $0, $1, $2;", "add.s32 $0, $1, $2;")),
    "a shift by 32 and more": ((U32, U32), instead("shl.b32 $0, $1, $2;", "and.b32 t, $2, 31; shl.b32 $0, $1, t;")),
    "a half that is infinite": ((F16,), where("and.b32 t, $1, 0x7fff; setp.eq.u32 p, t, 0x7c00; ")),
    "a quotient near one": (
        (F32, F32),
        instead("div.rn.f32 $0, $1, $2;", "rcp.rn.f32 f, $2; mul.rn.f32 $0, $1, f;"),
    ),
    "a byte of 0x80": ((U8,), where("and.b32 t, $1, 255; setp.eq.u32 p, t, 0x80; ")),
    "a product of halves": ((BF16, BF16), where("and.b32 t, $1, 0xffff; setp.eq.u32 p, t, 0x3f80; ")),
}  # fmt: skip


def _elementwise(formats: tuple[Format, ...], variant: AsmVariant, *names: str) -> CaseDeclaration:
    inputs = dict(zip(names, formats, strict=True))
    return Case(inputs=inputs, outputs={"out": U32}, reference=lambda *x: x[0], variants={"v": variant}, source="none")


@pytest.mark.parametrize("plant", PLANTS)
def test_a_mistake_is_shown(plant: str) -> None:
    formats, (right, wrong) = PLANTS[plant]
    constraints = f"=&r{',r' * len(formats)}"
    variant = asm(wrong, constraints, pack=1)
    case = _elementwise(formats, variant, *(f"x{k}" for k in range(len(formats))))
    sets = [*input_sets(case, "quick"), *constant_sets(case, "quick", variant)]
    for made in sets:
        if made is not None:
            units = [column.view(f"u{column.itemsize}").astype(np.uint32) for column in made.all().values()]
            found = [emulate(text, constraints, units, "uint32", pack=1) for text in (right, wrong)]
            if not np.array_equal(found[0], found[1]):
                return
    pytest.fail("no input set shows it")


@pytest.mark.parametrize("plant", ["one number of the code", "two roundings for one", "a byte of 0x80"])
def test_names_of_inputs_change_no_set(plant: str) -> None:
    formats, (_, wrong) = PLANTS[plant]
    variant = asm(wrong, f"=&r{',r' * len(formats)}", pack=1)
    made = []
    for names in ("abc", "zyx"):
        case = _elementwise(formats, variant, *names[: len(formats)])
        made.append([*input_sets(case, "quick"), *constant_sets(case, "quick", variant), stratified(case, 4096)])
    for one, other in zip(*made, strict=True):
        assert (one.name, one.seed, one.count) == (other.name, other.seed, other.count)
        for of_one, of_other in zip(one.all().values(), other.all().values(), strict=True):
            np.testing.assert_array_equal(of_one, of_other)


@triton.jit
def unused(a, b):
    """A kernel that is never run."""
    tl.store(b, tl.load(a))


SIZES = {"M": 4, "N": 24}


def _of_kernel(values: str, scale: str, index: str) -> list[dict[str, Any]]:
    """The inputs of a whole kernel in all of its sets, under these names."""

    def generate(sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Any]:
        return {
            values: rng.integers(0, 99, (4, 24), dtype=np.uint16),
            scale: rng.integers(0, 99, (), dtype=np.uint32),
            index: rng.integers(0, 99, 4, dtype=np.uint32),
        }

    case = Case(
        inputs={values: BF16["M", "N"], scale: Scalar(F32), index: I32["M"]},
        outputs={"y": BF16["M", "N"]},
        reference=lambda *x: x[0],
        variants={"v": kernel(unused, grid="1")},
        source="none",
        sizes=[SIZES],
        generate=generate,
        where={index: Domain("3..9", lambda v: (v[index] >= 3) & (v[index] <= 9))},
    )
    free = replace(case, where=None)
    made = [kernel_inputs(case, name, SIZES) for name in sets_for(case, SIZES)]
    return [*made, kernel_inputs(free, "generated/1", SIZES)]


def test_names_of_inputs_change_no_input_of_a_whole_kernel() -> None:
    for one, other in zip(_of_kernel("x", "scale", "at"), _of_kernel("q", "by", "index"), strict=True):
        for of_one, of_other in zip(one.values(), other.values(), strict=True):
            np.testing.assert_array_equal(of_one, of_other)


def test_two_inputs_of_one_format_are_different() -> None:
    """Their place among the inputs tells them apart."""
    case = Case(
        inputs={"a": F32["M", "N"], "b": F32["M", "N"]}, outputs={"y": F32["M", "N"]}, reference=lambda *x: x[0],
        variants={"v": kernel(unused, grid="1")}, source="none", sizes=[SIZES],
    )  # fmt: skip
    for name in sets_for(case, SIZES):
        made = kernel_inputs(case, name, SIZES)
        assert (made["a"] != made["b"]).any(), name
