"""Special registers: which targets have them and which moves read them, compared with ptxas; and instructions without a
result."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator import emulate, trace
from ptxdiff.emulator.binding.builder import BINDERS
from ptxdiff.emulator.binding.special_registers import SPECIAL_REGISTERS
from ptxdiff.emulator.errors import BindingError, UndefinedBits, UnknownSpecialRegister
from ptxdiff.emulator.isa import load
from ptxdiff.emulator.isa.forms import FORMS
from ptxdiff.emulator.isa.registry import REFUSED
from ptxdiff.emulator.kernel.run import Buffer, run_kernel
from tests.support.emulator.legality import check, error_of_emulate

MOVES = {"u32": ("u32", "b32", "s32", "f32"), "u64": ("u64", "b64", "f64"), "pred": ("pred",)}
WORDS = "{%b32_0, %b32_1, %b32_2, %b32_3}"
HALVES = "{%b16_0, %b16_1, %b16_2, %b16_3}"


def reads() -> list[str]:
    """Moves of every special register in its own and in other sizes."""
    lines = []
    for name, (kind, vector) in SPECIAL_REGISTERS.items():
        if name[-1] in "0123456789" and name != "%pm3":
            continue
        part = ".y" if vector else ""
        for move in (*MOVES[kind], "u16", "u32", "u64"):
            register = "%pred_0" if move == "pred" else f"%b{move[1:]}_0"
            lines.append(f"mov.{move} {register}, {name}{part};")
        if vector:
            lines += [f"mov.v4.u32 {WORDS}, {name};", f"mov.v4.f32 {WORDS}, {name};", f"mov.v4.u16 {HALVES}, {name};"]
    return list(dict.fromkeys(lines))


NOTHING = [
    *(f"pmevent {what};" for what in ("0", "15", "16", "-1", "1.0", "%b32_0")),
    *(f"pmevent.mask {what};" for what in ("1", "65535", "65536", "%b32_0")),
    *(f"nanosleep.u32 {what};" for what in ("20", "-1", "%b32_0", "%f32_0", "1.0", "1, 2", "%b64_0")),
    "pmevent;",
    "nanosleep.u32;",
]


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_107a"])
def test_the_emulator_accepts_the_reads_that_ptxas_accepts(target: str) -> None:
    check(reads() + NOTHING, target)


def test_the_error_names_a_register_that_the_target_lacks() -> None:
    error = error_of_emulate("mov.u32 %b32_0, %cluster_ctarank;", "sm_89")
    assert error
    assert "%cluster_ctarank needs sm_90 and later; the target is sm_89" in error
    assert error_of_emulate("mov.u32 %b32_0, %cluster_ctarank;", "sm_90") is None


FIVE = np.uint32([5])
DEPENDENT = {
    "mov.u32 $0, %tid.x;": "%tid.x",
    "{ .reg .b32 x; mov.b32 x, %reserved_smem_offset_1; add.u32 $0, $1, x; }": "%reserved_smem_offset_1",
    "{ .reg .b64 t; mov.u64 t, %globaltimer; shr.u64 t, t, 63; cvt.u32.u64 $0, t; }": "%globaltimer",
    "{ .reg .pred p; .reg .b32 x; mov.u32 x, %smid; setp.eq.u32 p, x, 0; mov.b32 $0, 1; @p mov.b32 $0, $1; }": "%smid",
    "{ .reg .pred p; .reg .b32 x; mov.u32 x, %clock; setp.eq.u32 p, x, 0; mov.b32 $0, 1; @p bra L; mov.b32 $0, 2; L: }":
        "%clock",
    "{ .reg .pred p; mov.pred p, %is_explicit_cluster; selp.b32 $0, 1, 2, p; }": "%is_explicit_cluster",
    "{ .reg .b32 x; mov.b32 x, %laneid; mov.b32 $0, %warpid; add.u32 $0, $0, x; }": "%laneid and %warpid",
}  # fmt: skip


@pytest.mark.parametrize("asm", DEPENDENT)
def test_a_result_that_depends_on_a_register_without_a_value_is_refused(asm: str) -> None:
    """The result depends on it by data, by a guard or by a branch. With a value from the caller, it is computed."""
    names = DEPENDENT[asm].split(" and ")
    words = f"line 1.*a result depends on {DEPENDENT[asm]}, .*special="
    with pytest.raises(UnknownSpecialRegister, match=words):
        emulate(asm, "=&r,r", [FIVE], "uint32")
    with pytest.raises(UnknownSpecialRegister, match=words):
        trace(asm, "=&r,r", [FIVE], "uint32")
    named = dict.fromkeys(names, 0)
    assert emulate(asm, "=&r,r", [FIVE], "uint32", special=named).dtype == np.uint32
    assert trace(asm, "=&r,r", [FIVE], "uint32", special=named).lines
    with pytest.raises(UndefinedBits, match="a result depends on %"):
        emulate(asm, "=&r,r", [FIVE], "uint32", special={names[0]: 0} if len(names) > 1 else {"%ctaid.z": 0})


@pytest.mark.parametrize(
    "asm",
    [
        "{ .reg .b64 t; mov.u64 t, %globaltimer; mov.b32 $0, $1; }",
        "{ .reg .b32 t; mov.u32 t, %tid.x; and.b32 t, t, 0; or.b32 $0, t, $1; }",
        "mov.u32 $0, %laneid; mov.b32 $0, $1;",
    ],
)
def test_a_register_without_a_value_may_be_read_if_no_result_depends_on_it(asm: str) -> None:
    assert emulate(asm, "=&r,r", [FIVE], "uint32").tolist() == [5]


def test_undefined_bits_of_another_cause_have_their_own_error() -> None:
    with pytest.raises(UndefinedBits, match="undefined bits") as caught:
        emulate("{ .reg .b32 t, u; mov.u32 t, %tid.x; add.u32 $0, $1, u; }", "=r,r", [FIVE], "uint32")
    assert not isinstance(caught.value, UnknownSpecialRegister)


@pytest.mark.parametrize(
    ("special", "said"),
    [
        ({"%tid": 0}, "no special register is written so"),
        ({"%laneid.x": 0}, "no special register is written so"),
        ({"laneid": 0}, "no special register is written so"),
        ({"%laneid": -1}, "integers from 0 to 4294967295"),
        ({"%laneid": 1.0}, "integers from 0"),
        ({"%is_explicit_cluster": 2}, "integers from 0 to 1"),
        ({"%laneid": [0, 1]}, "does not fit the elements' "),
    ],
)
def test_wrong_names_and_values_in_special_are_refused(special: dict[str, object], said: str) -> None:
    with pytest.raises(BindingError, match=said):
        emulate("mov.b32 $0, $1;", "=r,r", [np.zeros(3, np.uint32)], "uint32", special=special)


def test_elements_that_share_an_invocation_share_its_registers() -> None:
    halves, copy = [np.zeros(4, np.uint16)], "mov.u32 $0, %laneid;"
    with pytest.raises(BindingError, match="2 elements share an invocation"):
        emulate(copy, "=r,r", halves, "uint16", pack=2, special={"%laneid": [0, 1, 2, 3]})
    assert emulate(copy, "=r,r", halves, "uint16", pack=2, special={"%laneid": 3}).tolist() == [3, 0, 3, 0]


KERNEL = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .b64 %rd<3>; .reg .b32 %r<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd1, %rd1, %rd2;
    mov.u32 %r1, REGISTER;
    mov.u32 %r3, %r2;
    st.global.b32 [%rd1], STORED;
    ret;
}
"""


@pytest.mark.parametrize("register", ["%clock", "%smid", "%globaltimer_lo", "%nsmid", "%envreg3"])
def test_the_error_names_a_register_of_unknown_value_that_a_kernel_stores(register: str) -> None:
    text = KERNEL.replace("REGISTER", register)
    out = np.zeros(32, np.uint32)
    with pytest.raises(UndefinedBits, match=f"this kernel reads {register}, which no run here can know"):
        run_kernel(text.replace("STORED", "%r1"), [Buffer(out, "out")], (1,), num_threads=32)
    run_kernel(text.replace("STORED", "%r3"), [Buffer(out, "out")], (1,), num_threads=32)
    assert out.tolist() == list(range(32))


@pytest.mark.parametrize("register", ["%tid.x", "%ctaid.x", "%laneid", "%warpid", "%lanemask_lt", "%cluster_ctarank"])
def test_registers_of_the_grid_have_values_in_kernels(register: str) -> None:
    out = np.zeros(32, np.uint32)
    text = KERNEL.replace("REGISTER", register).replace("STORED", "%r1")
    run_kernel(text, [Buffer(out, "out")], (1,), num_threads=32)


def test_every_operation_runs_in_a_snippet_or_is_refused_with_a_reason() -> None:
    load()
    here = {name for name, binder in BINDERS.items() if binder.__module__.startswith("ptxdiff.emulator.binding.")}
    for opcode, forms in FORMS.items():
        assert opcode in REFUSED or all(not f.operation or f.operation in here for f in forms), opcode
