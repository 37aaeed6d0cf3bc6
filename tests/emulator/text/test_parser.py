"""The parser accepts what ptxas accepts, and refuses the rest with line and column.

Each spelling below was assembled with ptxas 13.4 (sm_90a) when it was written; `test_against_ptxas` does so again.
"""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxdiff.emulator.binding.builder import Builder
from ptxdiff.emulator.errors import BindingError, ParseError, PtxError
from ptxdiff.emulator.targets import Target
from ptxdiff.emulator.text.nodes import CodeBlock, Declaration, Immediate, Instruction, Pair, Sink, Vector
from ptxdiff.emulator.text.parser import parse_asm, parse_module

PRELUDE = (
    ".reg .b32 %r<20>; .reg .b16 %rs<20>; .reg .b64 %rd<20>; .reg .pred %p<20>; .reg .f32 %f<20>; "
    ".reg .s32 %s<10>; .reg .u32 %u<10>; .reg .b8 %b<9>; .reg .f16 %h<9>; .reg .f16x2 %hh<9>;"
)
ACCEPTED = [
    "add.ftz.rn.f32 %r1,%r2,%r3;",
    "add.f32.rn %r1,%r2,%r3;",
    "add .f32 %r1,%r2,%r3;",
    "add.f32 %r1,%r2,20.;",
    "add.f32 %r1,%r2,.5;",
    "add.f32 %r1,%r2,1e3;",
    "add.f32 %r1,%r2,1e+5;",
    "add.f32 %r1,%r2,-1.5;",
    "add.f32 %r1,%r2,0f3f800000;",
    "add.f32 %r1,%r2,0F3F800000;",
    "add.f32 %r1,%r2,0d3ff0000000000000;",
    "add.f32 %r1,%r2,1.0+2.0;",
    "add.f32 %f1, %f2, 1e39;",
    "add.s32 %r1, %u2, 4294967296;",
    "add.s32 %r1,%r2,18446744073709551616;",
    "add.u16 %rs1, %rs2, 70000;",
    "add.s32 %r1, %r2, 1+2*3;",
    "add.s32 %r1, %r2, (1<<4)|3;",
    "add.s32 %r1,%r2,1?2:3;",
    "add.s32 %r1,%r2,0b101;",
    "add.s32 %r1,%r2,0B11;",
    "add.s32 %r1,%r2,017;",
    "add.s32 %r1,%r2,0X1F;",
    "add.s32 %r1,%r2,12U;",
    "add.s32 %r1,%r2,- 1;",
    "add.s32 %r1,%r2,(.s64)5;",
    "add.u32 %r1, %r2, ~1;",
    "add.u32 %r1, %r2, !1;",
    "add.u32 %r1, WARP_SZ, 1;",
    "@!%p1 add.f32 %r1,%r2,%r3;",
    "@! %p1 add.f32 %r1,%r2,%r3;",
    "mov.u32 %r1, %tid.x;",
    "mov.b32 %r1, %laneid;",
    "mov.u32 %r1, WARP_SZ;",
    "mov.v4.u32 {%r1,%r2,%r3,%r4}, %tid;",
    "and.pred %p1, !%p2, %p3;",
    "and.pred %p1, %p2, 1;",
    "setp.eq.and.u32 %p1|%p2, %r1, %r2, !%p3;",
    "setp.and.eq.u32 %p1,%r1,%r2,%p2;",
    "setp.u32.eq %p1,%r1,%r2;",
    "setp.eq.u32 %p1|_, %r1, %r2;",
    "setp.eq.u32 _|%p1, %r1, %r2;",
    "setp.eq.u32 _, %r1, %r2;",
    "mov.v4.b32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,5};",
    ".reg .v4 .b32 %acc; mov.b32 %acc.x, %r1;",
    ".reg .v4 .b32 %a; mov.b32 %r1, %a.r;",
    ".reg .v4 .b32 %a; mov.v4.b32 %a, {%r1,%r2,%r3,%r4}; mov.b32 %r1, %a.w;",
    "shl.b32 %r1, %r2, -1;",
    "bra L; L:",
    "$L: bra $L;",
    "{}",
    "{ add.u32 %r1,%r2,%r3; }",
    "and.b32 %r1, %f1, %s1;",
    "and.b32 %r1,%r2,0f3f800000;",
    "mov.b32 %r1, %f1;",
    "mov.b32 {%b1,%b2,%b3,%b4}, %r1;",
    "mov.b32 {%rs1,_}, %r1;",
    "mov.b32 %r1, {%rs1, 0};",
    "mov.b32 %r1, {%b1, 0, 1, 2};",
    "mov.b32 %r1, {%rs1,_};",
    "mov.b32 %r1, {%r2};",
    "mov.b16 {%b1, _}, %rs1;",
    "mov.b64 {_, %r1}, %rd1;",
    "mov.b64 {%r1,%f1}, %rd1;",
    "mov.b64 %rd1, {%rs1, %rs2,%rs3,%rs4};",
    "mov.b64 %rd1, 1.0;",
    "mov.b64 %rd1, 0d3ff0000000000000;",
    "mov.f64 %rd1, 0f3f800000;",
    "mov.b32 %r1, 0xffffffffff;",
    "mov.pred %p1, 1;",
    "mov.pred %p1, !%p2;",
    "selp.f32 %r1, 1.0, 0f00000000, %p1;",
    "selp.b32 %r1,1,2,!%p1;",
    "cvt.u32.u8 %r1, %b1;",
    "cvt.u32.u8 %r1, %r1;",
    "cvt.u8.u32 %rs1, %r1;",
    "cvt.u32.u8 %r1, 300;",
    "cvt.rn.f32.s32 %r1, 5;",
    "cvt.f32.rn.s32 %r1,%r2;",
    "cvt.f32.s32.rn %r1,%r2;",
    "lop3.b32 %r1,%r2,%r3,%r4,256;",
    "lop3.b32 %r1,%r2,%r3,%r4,-1;",
    ".reg .b32 a<3>, b; mov.b32 a0, a2;",
    ".reg .b32 x<3>; .reg .b32 x; mov.b32 x, x0;",
    ".reg .b32 x<2>; { .reg .b32 x0; }",
    ".reg .b32 add; add.u32 add, add, add;",
    '.pragma "nounroll";',
    "add.f32 %r1,%r2,%r3; // a € and $",
]
REFUSED = [
    "add.f32 %r1,%r2,1;",
    "add.f32 %r1,%r2,0x3f800000;",
    "add.f32 %r1,%r2,-0f3f800000;",
    "add.f32 %r1,%r2,0f3f80000;",
    "add.f32 %r1,%r2,1.0f;",
    "add.f32 %r1,%r2,1.e;",
    "add.f32 %f1, %f2, 1e400;",
    "add.f32 %r1,-%r2,%r3;",
    "add.f32 %r1,%r2,% r3;",
    "add. f32 %r1,%r2,%r3;",
    "add.f32,%r1,%r2,%r3;",
    "add.f32.f32 %r1,%r2,%r3;",
    "add.foo.f32 %r1,%r2,%r3;",
    "add.rn.rn.f32 %r1,%r2,%r3;",
    "add.rn.rz.f32 %r1,%r2,%r3;",
    "ADD.f32 %r1,%r1,%r1;",
    "add.s32 %r1,%r2,%f3;",
    "add.f32 %r1,%r2,%s3;",
    "add.u32 %r1,%r2,1.0;",
    "add.u32 %r1, %rs2, %r1;",
    "add.u32 %r1, %r2",
    "add.u32 _, %r1, %r2;",
    "add.u32 %r1, %tid.x, 1;",
    "add.s32 %r1,%r2,08;",
    "add.s32 %r1,%r2,!%p1;",
    "add.f16 %rs1,%rs2,1.0;",
    "add.f16x2 %r1,%r2,0x3c003c00;",
    "mov.u32 %r1, %%tid.x;",
    "mov.u32 %r1, %tid;",
    "mov.u64 %rd1, %clock;",
    "mov.b32 %r1, 1.0;",
    "mov.f32 %r1, 1;",
    "mov.u32 %r1, %f1;",
    "mov.f32 %f1, %s1;",
    "mov.b16 %rs1, 1.0;",
    "mov.f16 %h1, %h2;",
    "mov.b8 %b1, 1;",
    "mov.u32 %r1, 0f3f800000;",
    "mov.b64 %rd1, 0f3f800000;",
    "mov.u32 {%rs1,%rs2}, %r1;",
    "mov.b32 {%b1,%rs2,%b1}, %r1;",
    "mov.b32 %r1, {%r2,%r3};",
    "mov.b32 %r1, %rs1;",
    "mov.b32 {_, _}, %r1;",
    "mov.b32 _, %r1;",
    "mov.v2.b32 {%r1,%r2}, %rd1;",
    "mov.pred %p1, %r1;",
    "mov.b32 %r1, 1 , ;",
    "mov.b32 %r1, 'a';",
    "shl.b32 %r1, %r2, %rs1;",
    "shl.b32 %r1,%r2,1.0;",
    "{ .reg .b32 t; mov.b32 t, 1; } mov.b32 t, 2;",
    "mov.b32 t, 2; .reg .b32 t;",
    "bra L; { L: }",
    "bra 5;",
    ";",
    "{ add.u32 %r1,%r2,%r3 }",
    "@!!%p1 ret;",
    "@%r1 ret;",
    "add.f32 %r1,%r2,%r3; /* x",
    "lop3.b32 %r1,%r2,%r3,%r4,%r5;",
    "fma.rn.f32 %r1,%r2,%r3,%r4,%r5;",
    "fma.f32 %r1,%r2,%r3,%r4;",
    "cvt.rn.f16.f32 %f1, %r2;",
    ".reg .b32 a b;",
    ".reg .b32 a, a;",
    ".reg .b32 a<3>; mov.b32 a0, a3;",
    ".reg .b32 a<3>; .reg .b32 a1;",
]


def build(body: str) -> None:
    """Parse and check a body that is written as for ptxas (asm text writes a dollar sign twice)."""
    tree, source = parse_asm(f"{PRELUDE}\n{{{body}\n}}".replace("$", "$$"))
    builder = Builder(source, Target.parse("sm_90a"), elementwise=True)
    builder.add(tree)
    builder.build()


@pytest.mark.parametrize("body", ACCEPTED)
def test_accepted_spellings(body: str) -> None:
    build(body)


@pytest.mark.parametrize("body", REFUSED)
def test_refused_spellings_have_a_place(body: str) -> None:
    with pytest.raises(PtxError) as caught:
        build(body)
    assert caught.value.line >= 2, str(caught.value)


def _ptxas() -> pathlib.Path | None:
    # The newer of the two in Triton's wheel, which Triton uses from sm_90 on.
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return None
    folder = pathlib.Path(found.origin).parent / "backends" / "nvidia" / "bin"
    return next((p for p in (folder / "ptxas-blackwell", folder / "ptxas") if p.exists()), None)


def _release(ptxas: pathlib.Path) -> tuple[int, ...]:
    said = subprocess.run([str(ptxas), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+)\.(\d+)", said)
    assert found, said
    return tuple(map(int, found.groups()))


@pytest.mark.slow
def test_against_ptxas(tmp_path: pathlib.Path) -> None:
    """Slow: one ptxas process for each of about 150 spellings."""
    ptxas = _ptxas()
    if ptxas is None:
        pytest.skip("Triton's ptxas is not installed")
    wrong = []
    release = _release(ptxas)
    for expected, bodies in ((True, ACCEPTED), (False, REFUSED)):
        for body in bodies:
            if release < (13, 4) and not body.isascii():
                continue  # 12.8, 12.9 and 13.0 accept ASCII alone
            text = (
                f".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(){{\n{PRELUDE}\n{body}\nret;\n}}\n"
            )
            (tmp_path / "a.ptx").write_text(text)
            command = [str(ptxas), "-arch=sm_90a", "a.ptx", "-o", "a.cubin"]
            if (subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0) != expected:
                wrong.append(body)
    assert not wrong


def test_escapes_of_inline_asm() -> None:
    tree, source = parse_asm("// $0 and $$ in a comment\n{ mov.b32 $0, ${1}; bra $$L; $$L: }", 2)
    block = tree.statements[0]
    assert isinstance(block, CodeBlock)
    move = block.statements[0]
    assert isinstance(move, Instruction)
    assert source.position(move.offset) == (2, 3)
    jump = block.statements[1]
    assert isinstance(jump, Instruction)
    assert source.position(jump.offset) == (2, 21), "the place counts in the text as written, not as expanded"
    assert source.statement(jump.offset) == "bra $$L;"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mov.b32 $0, $7;", "operand $7 does not exist"),
        ("mov.b32 $0, $x;", "operand number"),
        ("mov.b32 $0, ${1:c};", "modifier ':c'"),
        ("mov.b32 $0, ${;", "operand number"),
        ("// $9", "operand $9 does not exist"),
    ],
)
def test_references_that_llvm_refuses(text: str, words: str) -> None:
    with pytest.raises(BindingError, match=words.replace("$", r"\$").replace("{", r"\{")):
        parse_asm(text, 2)


def test_tree_of_vectors_pairs_and_numbers() -> None:
    tree, _ = parse_asm("mov.b32 {a, _, 0b101, 017}, $0; setp.eq.u32 p|q, -1, 0f3f800000; .reg .b8 t<4>, u;", 1)
    move, setp, first, second = tree.statements
    assert isinstance(move, Instruction)
    assert isinstance(move.operands[0], Vector)
    assert isinstance(move.operands[0].elements[1], Sink)
    assert [e.value for e in move.operands[0].elements if isinstance(e, Immediate)] == [5, 15]
    assert isinstance(setp, Instruction)
    assert isinstance(setp.operands[0], Pair)
    numbers = [o for o in setp.operands if isinstance(o, Immediate)]
    assert (numbers[0].value, numbers[1].single) == (-1, 0x3F800000)
    assert isinstance(first, Declaration)
    assert isinstance(second, Declaration)
    assert (first.count, second.count) == (4, None)


KERNEL = """
.version 8.7
.target sm_90a
.address_size 64
	// .globl	k
.extern .shared .align 16 .b8 global_smem[];
.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0,
	.param .u32 k_param_1
)
.reqntid 128
.maxnreg 64
{
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	.loc 1 12 0
$L__func_begin0:
	.loc	1 14 32
	mov.u32 %r1, %tid.x;
	.loc	2 41 15, function_name $L__info0, inlined_at 1 15 9
	@%p1 st.global.b32 [ %rd1 + -4 ], { %r1 };
	bra.uni $L__func_begin0;
	ret;
}
	.file	1 "/src/kernel.py"
	.file	2 "/src/lib.py"
	.section	.debug_abbrev
	{
.b8 1
.b8 17
	}
	.section	.debug_macinfo	{	}
"""


def test_module() -> None:
    module = parse_module(KERNEL)
    kernel = module.kernel()
    assert (module.version, module.target, kernel.name) == ("8.7", "sm_90a", "k")
    assert [(p.name, p.type) for p in kernel.parameters] == [("k_param_0", "u64"), ("k_param_1", "u32")]
    assert kernel.directives["reqntid"] == [128]
    assert module.files == {1: "/src/kernel.py", 2: "/src/lib.py"}
    assert kernel.body is not None
    store = [s for s in kernel.body.statements if isinstance(s, Instruction)][1]
    assert store.location is not None
    assert (store.location.file, store.location.line) == (2, 41)
    assert store.location.inlined_at is not None
    assert store.location.inlined_at.line == 15


PIECES = st.sampled_from(
    ["add", ".f32", ".u32", " ", "$0", "$1", "$", "{", "}", ",", ";", "%r1", "_", "1", "0f3f800000", "1.5", "-", "@",
     "!", "p", "|", "[", "]", "mov", ".b32", ".reg", ".pred", "L:", "bra", "L", "//", "/*", "*/", "\n", "<", ">", "2",
     "(", ")", "+", "setp", ".eq", "€", "'", '"', "\\", "0x", "::", ".", "a", "lop3", "ret"]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_text_parses_or_raises_our_error(text: str) -> None:
    with contextlib.suppress(PtxError):
        tree, source = parse_asm(text, 2)
        builder = Builder(source, Target.parse("sm_90a"), elementwise=True)
        builder.add(tree)
        builder.build()


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_characters_parse_or_raise_our_error(text: str) -> None:
    for parse in (parse_asm, parse_module):
        with contextlib.suppress(PtxError):
            parse(text)


def test_lines_of_inline_asm_have_the_line_of_its_call() -> None:
    """LLVM 22 numbers the lines of an asm block upwards from the line of the call."""
    text = """.version 8.8
.target sm_90a
.visible .entry k() {
.reg .b32 %r<3>;
.loc 1 9 3
// begin inline asm
.loc 1 9 3
mov.u32 %r1, 0x0;
.loc 1 10 3
mov.u32 %r2, 0x0;
// end inline asm
.loc 1 12 1
ret;
}
"""
    body = parse_module(text).kernel().body
    assert body is not None
    places = [s.location.line for s in body.statements if isinstance(s, Instruction) and s.location]
    assert places == [9, 9, 12]


UNENDED = """.version 8.8
.target sm_90a
.visible .entry k() {
.reg .b32 %%r<3>;
.loc 1 9 3 // kernel.py:9:3
// begin inline asm
.loc 1 9 3
%s
// end inline asm
.loc 1 12 1
mov.u32 %%r1, 1;
ret;
}
"""


@pytest.mark.parametrize("asm", ["mov.u32 %r1, 0x0", "mov.u32 %r1, 0x0; mov.u32 %r2, %r1 // ;", "mov.u32 %r1, /* } */"])
def test_a_missing_last_semicolon_is_reported_at_the_asm(asm: str) -> None:
    with pytest.raises(ParseError, match=r"line 8, .*inline asm called at kernel\.py:9 does not end in ';'") as caught:
        parse_module(UNENDED % asm)
    assert caught.value.source == asm


@pytest.mark.parametrize("asm", ["mov.u32 %r1, 0x0;", "{ mov.u32 %r1, 0x0; }", "L:", "// nothing"])
def test_an_error_after_complete_asm_keeps_its_place(asm: str) -> None:
    with pytest.raises(ParseError, match="line 11") as caught:
        parse_module((UNENDED % asm).replace("%r1, 1;", "%r1 1;"))
    assert "inline asm" not in str(caught.value)


@pytest.mark.parametrize("shape", ["16x64b", "16x128b", "16x256b", "32x32b", "16x32bx2", "4x256b", "128x128b"])
def test_shapes_of_tensor_memory_are_modifiers(shape: str) -> None:
    tree, _ = parse_asm(f"tcgen05.cp.cta_group::1.{shape} [$0], $1; mov.f32 $0, .16;")
    (copy, move) = tree.statements
    assert isinstance(copy, Instruction)
    assert copy.modifiers == ("cp", "cta_group::1", shape)
    assert isinstance(move, Instruction)
    assert isinstance(move.operands[1], Immediate)
