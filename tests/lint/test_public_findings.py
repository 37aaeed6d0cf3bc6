"""Classes of findings in public code that were wrong, too loud or missed; each with the twin that must stay."""

import pytest

from ptxdiff.lint.files import lint_text


def findings(text, path="file.cu"):
    return [(f.rule, f.severity) for f in lint_text(path, text.encode()).findings]


def cuda(statement, name="f"):
    return findings(
        f"__device__ void {name}(unsigned &y, unsigned x, float &g, float z, short h) {{\n  {statement}\n}}\n"
    )


def mlir(asm, constraints, arguments="a, b, c, d", effects=False, results="T.f32()", name="f"):
    return findings(
        f"def {name}(a, b, c, d):\n    return llvm.inline_asm({results}, [{arguments}], {asm!r}, {constraints!r}, "
        f"has_side_effects={effects})\n",
        "file.py",
    )


# extraction ---------------------------------------------------------------------------------------------------------


def test_operands_without_a_comma_between_them_are_two():
    assert cuda('asm volatile("st.shared.b16 [%0], %1;" :: "r"(x) "h"(h) : "memory");') == []
    assert cuda('asm volatile("st.shared.b16 [%0], %2;" :: "r"(x) "h"(h) : "memory");') == [
        ("operand-out-of-range", "error")
    ]


def test_an_operand_that_is_missing_in_a_name_is_found_once():
    commit = 'asm volatile("commit.cta_group::%2.mbarrier::arrive::one.b64 [%0]{rest};" :: "r"(x), "n"(1) : "memory");'
    statement = commit.replace("commit", "tcgen05.commit")
    assert cuda(statement.replace("{rest}", ", %1")) == [("operand-out-of-range", "error")]
    assert ("syntax", "error") in cuda('asm volatile("st.shared.b32 [%0], ::;" :: "r"(x) : "memory");')


INSERTED = 'asm("fma.rn%4.f32 %0, %1, %2, %3;" : "=f"(g) : "f"(z), "f"(z), "f"(z), "{letter}"(mode));'


def test_the_text_of_an_operand_under_c_is_not_judged():
    assert cuda(INSERTED.format(letter="C")) == []
    assert ("syntax", "error") in cuda(INSERTED.format(letter="r"))


INTO_A_NAME = """asm volatile("mma.sync.aligned.m8n8k%8.row.col.s32.s4.s4.s32 {{%0, %1}}, {{%2}}, {{%3}}, {{%4, %5}};"
    : "=r"(y), "=r"(y) : "r"(x), "r"(x), "r"(x), "r"(x), "r"(x), "r"(x), "{letter}"(size));"""


def test_a_constant_in_the_name_of_an_instruction_is_not_judged():
    assert ("unknown-instruction", "error") not in cuda(INTO_A_NAME.format(letter="n"))
    assert ("unknown-instruction", "error") in cuda(INTO_A_NAME.format(letter="n").replace("m8n8k%8", "m8n8k1"))


@pytest.mark.parametrize("name", ["llvm.amdgcn.raw.buffer.load.f16", "llvm.amdgcn.is.shared", "load_f32"])
@pytest.mark.parametrize("path", ["file.h", "file.cu"])
def test_the_name_of_a_symbol_is_no_asm(name, path):
    assert findings(f'extern float load(int) asm("{name}");\n', path) == []


@pytest.mark.parametrize("path", ["file.h", "file.cu"])
def test_one_instruction_without_a_semicolon_is_ptx_in_a_header_too(path):
    text = '__device__ void f() {{ asm volatile("{}"); }}\n'
    assert findings(text.format("trap"), path) == [("syntax", "error")]
    assert findings(text.format("trap;"), path) == []


def test_a_wait_for_copies_accesses_no_memory_itself():
    text = '__device__ void f() {{ asm volatile("{}"); }}\n'
    for asm, words in (("cp.async.wait_all;", "waits for copies"), ("prefetch.global.L1 [a];", "accesses memory")):
        messages = [f.message for f in lint_text("file.cu", text.format(asm).encode()).findings]
        assert [m for m in messages if "memory" in m] == [m for m in messages if words in m]


CARRIED = """asm volatile("{{ .reg .u16 al, ah, bl, bh; mov.b32 {{al, ah}}, %1; mov.b32 {{bl, bh}}, %2; "
    "mul.wide.u16 %0, al, bh; {opcode} %0, %0, %3; }}" : "{output}"(y) : "r"(x), "r"(x), "r"(x));"""


@pytest.mark.parametrize("opcode", ["addc.u32", "addc.cc.u32", "subc.u32"])
def test_registers_are_shared_where_a_statement_reads_an_earlier_one_s_carry(opcode):
    assert cuda(CARRIED.format(opcode=opcode, output="=r")) == [("missing-early-clobber", "error")]
    assert cuda(CARRIED.format(opcode=opcode, output="=&r")) == []


@pytest.mark.parametrize("asm", ["addc.u32 %0, %1, %1;", "add.cc.u32 %0, %1, %1;"])
def test_volatile_keeps_statements_in_order_that_hand_on_a_carry(asm):
    assert cuda(f'asm volatile("{asm}" : "=r"(y) : "r"(x));') == []
    assert cuda('asm volatile("add.u32 %0, %1, %1;" : "=r"(y) : "r"(x));') == [("impure-arithmetic", "note")]


SHUFFLE = """__device__ void f(unsigned &y, unsigned x) {
  asm("shfl.sync.up.b32 %0, %1, 1, 0, 0xffffffff;" : "=r"(y) : "r"(x));
}
"""


def test_a_macro_may_make_each_asm_statement_volatile():
    warned = [("pure-warp-level", "note")]
    assert findings(SHUFFLE) == warned
    assert findings("#ifdef __GNUC__\n# define asm __asm__ __volatile__\n#endif\n" + SHUFFLE) == []
    assert findings("#define asm asm volatile\n#undef asm\n" + SHUFFLE) == warned
    assert findings("#define asm __asm__ // not volatile\n" + SHUFFLE) == warned


@pytest.mark.parametrize(("name", "found"), [("t%=", []), ("t", [("declaration-outside-braces", "warning")])])
def test_a_name_with_a_number_of_its_own_may_be_declared_outside_braces(name, found):
    asm = f'asm volatile(".reg .b64 {name}; mov.b64 {name}, %0; st.b64 [{name}], %0;" :: "l"(x) : "memory");'
    assert cuda(asm) == found


ASSERTED = """
@triton.jit
def f(x, kind: tl.constexpr):
    if kind == "relu":
        asm: tl.constexpr = "max.f32 $0, $1, 0f00000000;"
    else:
        asm: tl.constexpr = "mistake.f32 $0, $1;"
        {check}
    return tl.inline_asm_elementwise(asm, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
"""


@pytest.mark.parametrize("name", ["tl.static_assert", "static_assert"])
def test_a_path_through_a_false_static_assert_does_not_compile(name):
    assert findings(ASSERTED.format(check=f'{name}(False, "no such kind")'), "file.py") == []
    assert findings(ASSERTED.format(check=f'{name}(True, "fine")'), "file.py") == [("unknown-instruction", "error")]


LETTER = """
def letter(kind):
    if kind == "f32":
        return "f"
    elif kind == "b32":
        return "r"
    else:
        {check}

@triton.jit
def f(x, kind: tl.constexpr):
    letters = f"={{letter(kind)}},r"
    return tl.inline_asm_elementwise("neg.s32 $0, $1;", letters, [x], dtype=tl.int32, is_pure=True, pack=1)
"""


@pytest.mark.parametrize("check", ['tl.static_assert(False, "kind")', 'raise ValueError("kind")'])
def test_a_path_ends_where_a_called_function_fails(check):
    assert findings(LETTER.format(check=check), "file.py") == []
    assert ("constraint-letters", "warning") in findings(LETTER.format(check="return None"), "file.py")


# effects and other threads ------------------------------------------------------------------------------------------

QUERY = (
    'asm("{{ .reg .b128 r; mov.b128 r, {{%1, %2}}; clusterlaunchcontrol.{what} }}" '
    ': "=r"(y) : "l"(first), "l"(second));'
)


def test_a_query_of_a_cancelled_request_is_no_effect():
    assert cuda(QUERY.format(what="query_cancel.get_first_ctaid::x.b32.b128 %0, r;")) == []
    request = "try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
    text = f'asm("clusterlaunchcontrol.{request}" : "=r"(y) : "r"(x));'
    assert ("pure-side-effect", "error") in cuda(text)


MMA = (
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{{p}0,{p}1,{p}2,{p}3}},{{{p}4,{p}5,{p}6,{p}7}},{{{p}8,{p}9}},"
)
MMA += "{{{p}10,{p}11,{p}12,{p}13}};"
OPERANDS = (
    ': "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "r"(x), "r"(x), "r"(x), "r"(x), "r"(x), "r"(x), "f"(z), "f"(z), "f"(z), '
    '"f"(z)'
)


def test_a_product_without_volatile_is_a_note_in_cuda():
    assert cuda(f'asm("{MMA.format(p="%")}" {OPERANDS});') == [("pure-warp-level", "note")]
    constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
    assert ("pure-warp-level", "error") in mlir(MMA.format(p="$"), constraints, ", ".join("abcdefghij"), results="S")


@pytest.mark.parametrize(
    ("asm", "rule"),
    [
        ("activemask.b32 %0;", ("pure-warp-level", "error")),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];", ("pure-load", "warning")),
    ],
)
def test_what_depends_on_more_than_its_operands_is_more_than_a_note(asm, rule):
    assert rule in cuda(f'asm("{asm}" : "=r"(y) : "r"(x));')


# registers ----------------------------------------------------------------------------------------------------------

WIDEN = 'asm("shl.b32 %0, %2, 16; and.b32 %1, %2, 0xffff0000;" : "={out}"(a), "={out}"(b) : "{into}"(x));'


def test_registers_of_different_letters_are_a_note_for_nvcc():
    assert cuda(WIDEN.format(out="f", into="r")) == [("missing-early-clobber", "note")]
    assert cuda(WIDEN.format(out="r", into="r")) == [("missing-early-clobber", "error")]


def test_one_output_of_the_input_s_letter_is_enough_for_an_error():
    text = WIDEN.format(out="f", into="r").replace("=f", "=r", 1)
    assert cuda(text) == [("missing-early-clobber", "error")]


def test_in_triton_they_are_one_class():
    asm = "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;"
    assert mlir(asm, "=f,=f,r", "a", results="S") == [("missing-early-clobber", "error")]


MEMORY = 'asm volatile("ld.shared.b32 %0, [%1]; st.shared.b32 [%1], %2;" : "={out}"(g) : "r"(x), "r"(x) : "memory");'


def test_the_same_holds_of_blocks_that_only_their_order_judges():
    assert cuda(MEMORY.format(out="f")) == [("missing-early-clobber", "note")]
    assert cuda(MEMORY.format(out="r")) == [("missing-early-clobber", "error")]


# names and subnormals -----------------------------------------------------------------------------------------------

SCALED = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
    "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13},{%14},{0,0},{%15},{0,0};"
)


@pytest.mark.parametrize(("name", "found"), [("mma_mxf4_ue4m3", False), ("mma_mxf4_e4m3", True)])
def test_the_format_of_scales_is_not_that_of_elements(name, found):
    operands = OPERANDS + ', "r"(x), "r"(x)'
    assert (("name-mismatch", "warning") in cuda(f'asm volatile("{SCALED}" {operands});', name)) is found


@pytest.mark.parametrize(
    ("name", "asm", "found"),
    [
        ("f16_to_bf16", "{ .reg .f32 t; cvt.f32.f16 t, %1; cvt.rn.bf16.f32 %0, t; }", False),
        ("f16_to_bf16", "{ .reg .f32 t; cvt.f32.bf16 t, %1; cvt.rn.f16.f32 %0, t; }", True),
        ("bf16_to_half", "{ .reg .f32 t; cvt.f32.f16 t, %1; cvt.rn.bf16.f32 %0, t; }", True),
        ("bf162half", "{ .reg .f32 t; cvt.f32.bf16 t, %1; cvt.rn.f16.f32 %0, t; }", False),
    ],
)
def test_a_name_with_two_formats(name, asm, found):
    statement = f'asm("{asm}" : "=h"(y) : "h"(h));'
    assert cuda(statement, name) == ([("name-mismatch", "warning")] if found else [])


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("mul.ftz.f32 t, %1, %1", "ex2.approx.f32 %0, t", "warning"),
        ("rcp.approx.ftz.f32 t, %1", "mul.f32 %0, t, t", "note"),
        ("mul.f32 t, %1, %1", "ex2.approx.ftz.f32 %0, t", ""),
        ("add.ftz.f32 t, %1, %1", "rsqrt.approx.f32 %0, t", "warning"),
        ("rcp.approx.ftz.f32 t, %1", "rsqrt.approx.f32 %0, t", "warning"),
        ("rcp.approx.ftz.f32 t, %1", "mul.ftz.f32 %0, t, t", ""),
        ("mul.f32 t, %1, %1", "tanh.approx.f32 %0, t", ""),
        ("mul.ftz.f32 t, %1, %1", "tanh.approx.f32 %0, t", ""),
    ],
)
def test_mixed_ftz_with_approximate_instructions(first, second, found):
    statement = f'asm("{{ .reg .f32 t; {first}; {second}; }}" : "=f"(g) : "f"(z));'
    assert cuda(statement) == ([("mixed-ftz", found)] if found else [])


PACKED = "{{ .reg .b8 b<4>; {} mov.b32 $0, {{b0, b1, b2, b3}}; }}"


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ([(5, 1), (6, 2), (7, 3), (8, 4)], False),  # the low halves are the first four
        ([(1, 5), (2, 6), (3, 7), (4, 8)], True),  # the first pair has another order than the arguments within it
        ([(5, 1), (6, 2), (3, 7), (8, 4)], True),
        ([(2, 1), (4, 3), (6, 5), (8, 7)], False),
    ],
)
def test_arguments_may_be_interleaved_from_groups(pairs, found):
    lines = (f"cvt.rn.satfinite.e2m1x2.f32 b{n}, ${high}, ${low};" for n, (high, low) in enumerate(pairs))
    asm = PACKED.format(" ".join(lines))
    constraints = "=r,f,f,f,f,f,f,f,f"
    rules = mlir(asm, constraints, "a, b, c, d, a, b, c, d", results="T.i32()")
    assert rules == ([("packing-order", "warning")] if found else [])


def test_an_input_that_is_written_is_spelled_as_in_the_file():
    text = '__device__ void f(int x) {\n  asm volatile("add.s32 %0, %0, 1;" :: "r"(x));\n}\n'
    (finding,) = lint_text("file.cu", text.encode()).findings
    assert finding.message == "`add.s32 %0, %0, 1;` writes the input %0"
