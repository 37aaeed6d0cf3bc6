"""ptxas's report on a kernel, and its SASS."""

import re

import pytest

from ptxdiff.triton.assemble import Assembly, Disassembly, assemble, disassemble, opcodes, resources
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.diagnostics import Refusal, ptxas_complaints
from ptxdiff.triton.elementwise import Elementwise, InlineAsm
from ptxdiff.triton.ptx_text import asm_line
from ptxdiff.triton.targets import available, tool
from ptxdiff.triton.tools import Tool


def compiled(target="sm_90a", text="rcp.approx.ftz.f32 $0, $1;", fusion=False):
    kernel = Elementwise(InlineAsm(text, "=r,r"), ("fp32",), ("fp32",), (1000,))
    return compile_kernel(kernel.spec(target, enable_fp_fusion=fusion))


def test_machine_code_is_traced_to_our_asm():
    built = compiled()
    sass = disassemble(assemble(built), str(tool("nvdisasm"))).text
    lines = re.findall(r'ptx_txt[^"]*", line (\d+)\n[^\n]*MUFU\.RCP', sass)
    traced = [asm_line(built.ptx, int(line)) for line in lines]
    assert [(t.number, t.ours) for t in traced] == [(1, True), (1, True)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
def test_registers_and_instruction_counts(target):
    assembly = assemble(compiled(target))
    assert isinstance(assembly, Assembly), assembly
    assert assembly.resources["registers"] > 4
    assert assembly.resources["spill_stores"] == assembly.resources["stack"] == 0
    sass = disassemble(assembly, str(tool("nvdisasm")))
    assert isinstance(sass, Disassembly), sass
    assert sass.opcodes["MUFU.RCP"] == 2
    assert "NOP" not in sass.opcodes


def test_one_body_is_assembled_for_many_targets():
    assert len({compiled(target).body_hash for target in available()}) < len(available())


def test_asm_is_contracted_only_when_fusion_is_on():
    """ptxas fuses a product and a sum without rounding modifiers, also in inline asm."""
    asm = "{ .reg .f32 t; mul.f32 t, $1, $1; add.f32 $0, t, $1; }"

    def count(fusion):
        sass = disassemble(assemble(compiled(text=asm, fusion=fusion)), str(tool("nvdisasm")))
        return sass.opcodes.get("FFMA", 0)

    assert count(True) > 0
    assert count(False) == 0


def test_an_assembler_that_fails_or_is_missing_its_output_is_a_refusal(tmp_path):
    import dataclasses

    script = tmp_path / "ptxas"
    script.write_text("#!/bin/sh\necho 'ptxas fatal   : Memory allocation failure' >&2\nexit 1\n")
    script.chmod(0o755)
    broken = dataclasses.replace(compiled(), ptxas=Tool(str(script), "0.0"))
    refusal = assemble(broken)
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, refusal.words) == ("error", "Memory allocation failure")
    script.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashed = assemble(dataclasses.replace(broken, ptxas=Tool(str(script), "0.1")))
    assert isinstance(crashed, Refusal)
    assert (crashed.words, crashed.ended) == ("ptxas 0.1 ended by signal 11 (SIGSEGV)", "crashed")


WAITS_FOR_THE_OTHER = """#!/bin/sh
echo called >> {folder}/log
for attempt in $(seq 200); do
    [ $(wc -l < {folder}/log) -ge 2 ] && exit 1
    sleep 0.05
done
exit 2
"""


def test_kernels_are_assembled_at_the_same_time_and_each_once(tmp_path):
    import dataclasses
    from concurrent.futures import ThreadPoolExecutor

    script = tmp_path / "ptxas"
    script.write_text(WAITS_FOR_THE_OTHER.format(folder=tmp_path))
    script.chmod(0o755)
    pair = [dataclasses.replace(compiled(target), ptxas=Tool(str(script), "0.2")) for target in ("sm_80", "sm_90a")]
    with ThreadPoolExecutor(4) as threads:
        refusals = list(threads.map(assemble, pair * 2))
    assert [r.words for r in refusals] == ["ptxas 0.2 failed with status 1"] * 4
    assert (tmp_path / "log").read_text().count("called") == 2


def test_a_disassembly_is_made_once_for_a_cubin(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = tmp_path / "nvdisasm"
    script.write_text(f"#!/bin/sh\necho called >> {tmp_path}/log\necho '  /*0000*/  FADD R0, R1, R2 ;'\n")
    script.chmod(0o755)
    found = [disassemble(Assembly(cubin, {}), str(script)) for cubin in (b"one", b"one", b"two")]
    assert [d.opcodes for d in found] == [{"FADD": 1}] * 3
    assert (tmp_path / "log").read_text().count("called") == 2


def test_resources_are_read_from_either_release_of_ptxas():
    said = (
        "ptxas info    : Function properties for k\n"
        "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 20 registers, used 1 barriers, 1024 bytes smem, 380 bytes cmem[0]\n"
    )
    assert resources(said) == {
        "registers": 20, "barriers": 1, "shared": 1024, "stack": 8, "spill_stores": 4, "spill_loads": 12,
    }  # fmt: skip


def test_complaints_keep_their_lines():
    said = (
        "ptxas x.ptx, line 63; error   : Unknown modifier '.rq'\nptxas fatal   : Ptx assembly aborted due to errors\n"
    )
    assert [(c.line, c.words) for c in ptxas_complaints(said)] == [(63, "Unknown modifier '.rq'")]


def test_predicated_instructions_are_counted():
    assert opcodes("  /*0000*/  @!P0 FADD R0, R1, R2 ;\n  /*0010*/  @!UP0 FADD R0 ;\n /*0020*/ EXIT ;\n") == {
        "EXIT": 1, "FADD": 2,
    }  # fmt: skip


def test_targets_of_every_generation_are_available():
    assert {"sm_80", "sm_90a", "sm_100a", "sm_120a"} <= set(available())
