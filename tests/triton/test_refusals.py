"""Every fault that keeps inline asm from compiling gives one readable line, and the next kernel compiles."""

import pytest

from ptxdiff.processes.pool import CallEnd
from ptxdiff.processes.worker import Reply
from ptxdiff.triton import build as building
from ptxdiff.triton.build import Built, build, compiled
from ptxdiff.triton.diagnostics import Refusal, from_outcome
from ptxdiff.triton.elementwise import Elementwise, InlineAsm


def built(text, constraints, target="sm_90a", pack=1, inputs=("fp32",), outputs=("fp32",)):
    kernel = Elementwise(InlineAsm(text, constraints, pack), inputs, outputs, (1000,))
    result = build(kernel.spec(target, enable_fp_fusion=False))
    return kernel.explain(result) if isinstance(result, Refusal) else result


MOVE = "mov.b32 $0, $1;"

WRONG = {
    "one constraint too many": (MOVE, "=r,r,r", "takes 1 output and 1 input; the constraints list 1 and 2"),
    "one constraint too few": (MOVE, "=r", "takes 1 output and 1 input; the constraints list 1 and 0"),
    "one output too many": (MOVE, "=r,=r,r", "takes 1 output and 1 input; the constraints list 2 and 1"),
    "read and written": ("add.f32 $0, $0, $0;", "+r", "Triton has no '+r'"),
    "no such operand": ("add.f32 $0, $1, $7;", "=r,r", "Invalid $ operand number"),
    "open brace after a dollar": ("mov.b32 $0, ${1;", "=r,r", "Bad ${} expression"),
    "stray dollar": ("mov.b32 $0, $;", "=r,r", "Bad $ operand number"),
    "constant constraint": (MOVE, "=r,n", "constraint 'n' expects an integer constant expression"),
    "unknown constraint": (MOVE, "=r,z", "unknown asm constraint 'z'"),
    "misspelt instruction": ("mvo.b32 $0, $1;", "=r,r", "Not a name of any known instruction: 'mvo', asm line 1"),
    "wrong type": ("add.f32 $0, $1, 1;", "=r,r", "Arguments mismatch for instruction 'add', asm line 1"),
    "unknown modifier": ("add.rq.f32 $0, $1, $1;", "=r,r", "Unknown modifier '.rq'"),
    "unknown symbol": ("\n\nadd.f32 $0, $1, foo;", "=r,r", "Unknown symbol 'foo', asm line 3 `add.f32"),
    "missing semicolon": ("add.f32 $0, $1, $1;\nmov.b32 $0, $1", "=r,r", "asm line 2 `mov.b32"),
    "open block": ("{ mov.b32 $0, $1;", "=r,r", "syntax error"),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_in_the_asm_is_an_error_in_one_line(fault, monkeypatch):
    text, constraints, words = WRONG[fault]
    if fault != "unknown modifier":  # that one is tried on every target, the others on one target of each assembler
        monkeypatch.setattr(building, "_others", lambda spec: ["sm_120a", "sm_80"])
    refusal = built(text, constraints)
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "error"
    assert words in refusal.words
    assert "\n" not in refusal.words
    assert len(refusal.words) < 300
    assert isinstance(built(MOVE, "=r,r"), Built)


def test_the_register_counts_follow_pack_and_element_types():
    kernel = Elementwise(InlineAsm("", "", 4), ("u8", "fp32", "fp16"), ("i32", "fp64", "bf16"), (8,))
    assert kernel.registers == (4 + 4 + 2, 1 + 4 + 2)
    refusal = built(MOVE, "=r,=r,=r,=r,r", pack=4, inputs=("u8", "fp32"), outputs=("fp32",))
    assert "pack 4 of u8, fp32 -> fp32 takes 4 outputs and 5 inputs; the constraints list 4 and 1" in refusal.words


E2M1 = "{\n.reg .b8 t;\ncvt.rn.satfinite.e2m1x2.f32 t, $1, $1;\ncvt.u32.u8 $0, t;\n}"


def test_an_instruction_that_the_target_lacks_is_unsupported_with_ptxas_words_and_line():
    refusal = built(E2M1, "=r,r", "sm_90a")
    assert refusal.kind == "unsupported"
    assert "not supported on .target 'sm_90a'" in refusal.words
    assert "asm line 3 `cvt.rn.satfinite.e2m1x2.f32" in refusal.words
    assert isinstance(built(E2M1, "=r,r", "sm_100a"), Built)


def test_a_misspelling_beside_something_the_target_lacks_is_an_error():
    refusal = built(E2M1 + "\nmvo.b32 $0, $1;", "=r,r", "sm_90a")
    assert refusal.kind == "error"
    assert "asm line 6" in refusal.words


def test_a_refusal_of_an_old_ptxas_is_unsupported_if_another_target_accepts_the_kernel():
    """Three-operand max came with sm_100. For older targets ptxas 12 reports "Arguments mismatch"."""
    refusal = built("max.f32 $0, $1, $1, $1;", "=r,r", "sm_86")
    assert refusal.kind == "unsupported"


@pytest.mark.parametrize("stage", ["ptxas", "triton"])
@pytest.mark.parametrize("taker", ["sm_120a", None])
def test_only_a_refusal_of_ptxas_depends_on_other_targets(monkeypatch, stage, taker):
    refusal = Refusal("error", "Unknown modifier '.new'", stage=stage)
    accepted = object.__new__(Built)
    monkeypatch.setattr(building, "_build", lambda spec, chosen: accepted if spec.target == taker else refusal)
    kernel = Elementwise(InlineAsm(MOVE, "=r,r"), ("fp32",), ("fp32",), (8,))
    found = build(kernel.spec("sm_86", enable_fp_fusion=False))
    expected = "unsupported" if stage == "ptxas" and taker else "error"
    assert isinstance(found, Refusal)
    assert found.kind == expected
    assert ("sm_120a accepts it" in found.words) == (expected == "unsupported")


@pytest.mark.slow
def test_many_faults_at_once_get_the_right_answers():
    faults = [
        WRONG["one constraint too many"],
        WRONG["misspelt instruction"],
        (MOVE, "=r,r", ""),
        WRONG["stray dollar"],
    ]
    from ptxdiff.triton.compile import submit
    from ptxdiff.triton.spec import Compilation

    specs = [
        Elementwise(InlineAsm(text + f" // {n}", c), ("fp32",), ("fp32",), (64,)).spec("sm_80", enable_fp_fusion=False)
        for n in range(2)
        for text, c, _ in faults
    ]
    results = [future.result() for future in [submit(spec) for spec in specs]]
    compiled = [isinstance(r, Compilation) for r in results]
    assert compiled == [False, True, True, False] * 2


DIED = """python: mlir/lib/IR/BuiltinAttributes.cpp:1030: static Attr get(Type): Assertion `type.isIntOrIndex()' failed.
kernel.py:8:0: error: Failures have been detected while processing an MLIR pass pipeline
kernel.py:8:0: note: Pipeline failed while executing [`TritonGPUAccelerateMatmul` on 'builtin.module' operation]
"""


@pytest.mark.parametrize(("dies", "kind"), [(("sm_90a",), "unsupported"), ((), "error")])
def test_a_crashing_pass_is_unsupported_if_another_target_compiles(monkeypatch, dies, kind):
    """dies: the targets on which the pass crashes; empty for all."""
    raised = Reply(raised="RuntimeError", message="PassManager::run failed")

    def compile_kernel(spec):
        return from_outcome(CallEnd(raised, DIED, "")) if not dies or spec.target in dies else "PTX"

    monkeypatch.setattr("ptxdiff.triton.build.compile_kernel", compile_kernel)
    kernel = Elementwise(InlineAsm(MOVE, "=r,r", 1), ("fp32",), ("fp32",), (1000,))
    refusal = compiled(kernel.spec("sm_90a", enable_fp_fusion=False))
    assert refusal.kind == kind
    assert refusal.words.startswith("Assertion `type.isIntOrIndex()' failed")
    assert ("accepts it" in refusal.words) is bool(dies)
    assert compiled(kernel.spec("sm_100a", enable_fp_fusion=False)) == "PTX" or not dies
