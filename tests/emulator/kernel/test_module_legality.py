"""Whole modules that the emulator accepts or refuses as ptxas does: declarations, state spaces, directives, vectors."""

import subprocess

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import PtxError
from ptxdiff.emulator.kernel.load import load_kernel
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.targets import assembler

HEAD = ".version 8.1\n.target sm_90a\n.address_size 64\n"
VARIABLES = ".global .b32 gv; .shared .b32 sv; .const .b32 cv;\n"
REGISTERS = (
    ".reg .b64 %d<4>; .reg .b32 %r<8>; .reg .b16 %h<4>; .reg .pred %p<4>; .reg .f32 %f<4>; .reg .f16x2 %x<4>;\n"
    ".local .b32 lv; .shared .align 16 .b8 s[64];\n"
)


def module(body="", head=HEAD, directives="", linkage=".visible"):
    return f"{head}{VARIABLES}{linkage} .entry k(.param .u64 p) {directives}\n{{\n{REGISTERS}{body}\nret;\n}}\n"


ACCEPTED = [
    *(f"ld{space}.b32 %r0, [{name}];" for space, name in
      [("", "gv"), ("", "sv"), ("", "lv"), (".global", "gv"), (".shared", "sv"), (".const", "cv"), (".local", "lv"),
       (".param", "p")]),
    "cvta.shared.u64 %d0, s;", "cvta.global.u64 %d0, gv;", "{ .reg .b32 p; mov.b32 p, 1; }", "%q: bra %q;",
    "ld.shared.b32 %d0, [s];", "ld.shared.v2.b32 {%r0, %f0}, [s];", "shfl.sync.bfly.b32 %f0, %f1, 1, 31, -1;",
    ".reg .b32 add, ret, k;", "redux.sync.and.b32 %r0, %r1, -1;", "bar.sync 15;", "barrier.arrive 15, 64;",
]  # fmt: skip
REFUSED = [
    *(f"ld{space}.b32 %r0, [{name}];" for space, name in
      [("", "cv"), ("", "p"), (".global", "sv"), (".global", "p"), (".shared", "gv"), (".local", "sv"),
       (".const", "gv"), (".param", "sv"), (".shared", "lv")]),
    "cvta.to.shared.u64 %d0, s;", "cvta.shared.u64 %d0, gv;", "mov.b32 %r0, !%tid.x;", "mov.u32 %r0, (%r1);",
    ".reg .b32 p;", ".reg .b32 x; .shared .b32 x;", "ld.shared.b32 %r0, [%x0];",
    ".reg .b32 %tid; mov.u32 %r0, %tid.x;", "bar.sync 16;", "barrier.sync -1, 32;", "bar.arrive 16, 64;",
    "ld.shared.v2.b32 {%r0, %d0}, [s];", "st.shared.v2.b32 [s], {%r0, %d0};", "ld.shared.v2.u32 (%r0, %r1), [s];",
    "shfl.sync.bfly.b32 %d0, %r1, 1, 31, -1;", "vote.sync.ballot.b32 %d0, %p0, -1;", "activemask.b32 %d0;",
    "redux.sync.add.u32 %d0, %r0, -1;",
    "redux.sync.and.b32 %f0, %f1, -1;", "redux.sync.and.b32 %r0, %x1, -1;", "redux.sync.and.b32 %x0, %r1, -1;",
    "match.any.sync.b32 %d0, %r0, -1;", "elect.sync %d0|%p0, -1;",
    "atom.shared.add.u32 %d0, [s], %r0;", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d0}, [s];",
]  # fmt: skip
ACCEPTED_WHOLE = [
    *(module(directives=d) for d in
      (".maxntid 8,8,8", ".reqntid 128", '.pragma "x";', ".maxntid 128 .minnctapersm 2", ".maxnreg 16",
       ".explicitcluster .reqnctapercluster 2", ".maxclusterrank 4")),
    module(head=HEAD.replace(".address", ".target sm_90a\n.address")),
]  # fmt: skip
REFUSED_WHOLE = [
    *(module(directives=d) for d in
      (".maxntid 8,8,8,8", ".maxntid", ".maxntid 0", ".reqntid 128 .maxntid 128", ".maxntid 128 .reqntid 128",
       ".pragma", '.pragma "x"', ".minnctapersm", ".noreturn", ".foo", ".maxnreg 0")),
    *(module(head=h) for h in
      (HEAD.replace("64", "32"), HEAD.replace("64", "48"), HEAD + ".version 8.1\n", HEAD + ".address_size 64\n",
       HEAD.replace("sm_90a", "SM_90"))),
    *(module(linkage=w) for w in (".extern", ".visible .weak", ".visible .visible")),
    module().replace("k(.param .u64 p)", "k(.param .u64 p .param .u64 q)"),
]  # fmt: skip
TEXTS = [
    *((module(t), True) for t in ACCEPTED), *((module(t), False) for t in REFUSED),
    *((t, True) for t in ACCEPTED_WHOLE), *((t, False) for t in REFUSED_WHOLE),
]  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize(("text", "accepted"), TEXTS, ids=range(len(TEXTS)))
def test_the_emulator_accepts_what_ptxas_accepts(text, accepted, tmp_path):
    try:
        load_kernel(text)
        error_text = ""
    except PtxError as error:
        error_text = error.message
    assert (error_text == "") == accepted, error_text or text
    try:
        ptxas = assembler("sm_90a").path
    except NoTriton as error:
        pytest.skip(str(error))
    source = tmp_path / "module.ptx"
    source.write_text(text)
    command = [ptxas, "-O0", "--gpu-name=sm_90a", str(source), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == accepted, done.stderr


@pytest.mark.parametrize("name", ["%laneid", "%tid", "%clock64", "%envreg3"])
def test_declarations_of_predefined_names_are_refused(name):
    """ptxas accepts them, and the name is then the declared register; a reader expects the special one (ISA 4.4)."""
    with pytest.raises(PtxError, match="is a special register, and cannot be declared"):
        load_kernel(module(f".reg .b32 {name};"))
    with pytest.raises(PtxError, match="is a special register, and cannot be declared"):
        load_kernel(module(".reg .b32 %envreg<3>;"))


def test_generic_accesses_reach_variables_by_their_names():
    body = """mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, 3; st.local.b32 [lv], %r1; ld.b32 %r2, [lv];
setp.eq.u32 %p0, %r0, 0; @%p0 st.b32 [sv], 100; bar.sync 0; ld.b32 %r3, [sv]; add.u32 %r2, %r2, %r3;
ld.param.u64 %d0, [p]; mad.wide.u32 %d0, %r0, 4, %d0; st.global.b32 [%d0], %r2;"""
    y = np.zeros(32, np.int32)
    run_ptx(module(body), 1, 32, y)
    assert (y == 3 * np.arange(32) + 100).all()
