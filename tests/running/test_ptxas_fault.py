"""The diagnosis `ptxas`: given if another level proves it, and not if anything else may be the cause.

There is no GPU: planted assemblers give PTX as machine code, and a process in the GPU's place emulates it.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from ptxdiff.backends import driver, gpu_process
from ptxdiff.backends.assembler import AssemblerBackend
from ptxdiff.backends.gpu_process import WatchedGpu
from ptxdiff.jobs import Artifacts, Job, Outcome, Setup
from ptxdiff.model.load import load
from ptxdiff.processes.child import Device
from ptxdiff.processes.gpus import Gpu
from ptxdiff.running import ptxas_fault
from ptxdiff.running.item import Item
from ptxdiff.running.ptxas_fault import blamed
from ptxdiff.running.run import run_item
from ptxdiff.triton import assemble as assembling
from ptxdiff.triton.ptxas import assembler_at
from tests.support.running.ptxas_case import CASE

pytest.importorskip("torch")
pytest.importorskip("triton")

TARGET = "sm_90a"
GPU = Gpu("GPU-7", "a GPU", "GPU-0-test", TARGET, 1 << 30)
FLIPPING = Path(__file__).parents[1] / "fuzz" / "flipping_ptxas.sh"


PLANTED = """#!/bin/sh
for word; do
    case $word in
        --version) echo "ptxas: Cuda compilation tools, release 99.9, V99.9.2"; exit ;;
        *.ptx) source=$word ;;
        -O0) lowest=1 ;;
    esac
    made=$word # the last one
done
{action}
"""


KERNEL = """
from ptxdiff import Case, ptx
from ptxdiff.references.formats import U32

TEXT = '''.version 8.1
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_x, .param .u64 k_y, .param .u32 k_n)
{
.reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .pred %p<4>;
.shared .align 4 .b8 tile[256];
ld.param.u64 %rd1, [k_x];
ld.param.u64 %rd2, [k_y];
ld.param.u32 %r1, [k_n];
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mov.u32 %r4, %tid.x;
mad.lo.s32 %r5, %r2, %r3, %r4;
setp.ge.u32 %p1, %r5, %r1;
@%p1 bra $L__BB0_9;
cvta.to.global.u64 %rd3, %rd1;
mul.wide.u32 %rd4, %r5, 4;
add.s64 %rd5, %rd3, %rd4;
ld.global.u32 %r6, [%rd5];
shl.b32 %r7, %r4, 2;
mov.u32 %r8, tile;
add.s32 %r9, %r8, %r7;
st.shared.u32 [%r9], %r6;
bar.sync 0;
ld.shared.u32 %r10, [%r9];
BODY
cvta.to.global.u64 %rd6, %rd2;
add.s64 %rd7, %rd6, %rd4;
st.global.u32 [%rd7], %r10;
$L__BB0_9:
ret;
}
'''
BODIES = {
    "branch": "setp.gt.u32 %p2, %r10, 99; @%p2 bra $A; xor.b32 %r10, %r10, 12; bra.uni $B; $A: xor.b32 %r10, %r10, 6; "
              "add.s32 %r10, %r10, 1; $B: add.s32 %r10, %r10, 1;",
    "loop": "mov.u32 %r11, 0; $A: xor.b32 %r12, %r10, 255; add.s32 %r10, %r12, %r11; add.s32 %r11, %r11, 1; "
            "setp.lt.u32 %p2, %r11, 5; @%p2 bra $A;",
}

def branch(x):
    return ((x <= 99) * ((x ^ 12) + 1) + (x > 99) * ((x ^ 6) + 2)) & 0xffffffff

def loop(x):
    for n in range(5):
        x = ((x ^ 255) + n) & 0xffffffff
    return x

def case_of(body, reference):
    return Case(
        inputs={"x": U32["T"]}, outputs={"y": U32["T"]}, reference=reference, sizes=[{"T": 64}],
        variants={body: ptx(TEXT.replace("BODY", BODIES[body]), grid=2, block=32, parameters=["x", "y", "T"])},
    )

in_a_branch = case_of("branch", branch)
in_a_loop = case_of("loop", loop)
"""


@pytest.mark.parametrize("body", ["branch", pytest.param("loop", marks=pytest.mark.slow)])
def test_a_fault_within_a_branch_or_a_loop_is_reduced_to_a_few_instructions(backend, tmp_path, monkeypatch, body):
    monkeypatch.setattr(ptxas_fault, "REDUCING", 600.0)  # enough on a busy machine
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    loaded = next(c for c in load(path) if body in c.case.variants)
    item = Item(loaded, body, TARGET, backend.name)
    by = (assembler_at(FLIPPING, 3),)
    found = run_item(item, backend, "quick", stop=True, assemblers=by, dump=tmp_path).results[-1]
    assert (found.verdict, found.diagnosis) == ("fail", "ptxas"), found.message
    assert "it is reduced to the part that shows the fault" in found.message
    (file,) = tmp_path.glob("*.ptx")
    text = file.read_text()
    kept = [line for line in text[text.index("{") :].splitlines() if line.endswith(";")]
    instructions = [line for line in kept if not line.startswith((".reg", ".shared", "ret;"))]
    assert any("xor.b32" in line for line in instructions)
    assert len(instructions) < 10, text


@pytest.fixture(autouse=True)
def _brief(monkeypatch):
    """Two tests examine the reduced PTX; reducing the first one's kernel takes a few seconds."""
    monkeypatch.setattr(ptxas_fault, "REDUCING", 4.0)


@pytest.fixture(scope="module")
def device():
    sys.path.insert(0, str(Path(__file__).parents[1] / "backends"))
    made = Device(GPU, begin="device_stand_in:begin_as_emulator")
    yield made
    made.close()


@pytest.fixture
def backend(device, monkeypatch):
    monkeypatch.setattr(gpu_process, "gpus", lambda: (GPU,))
    monkeypatch.setattr(gpu_process, "of_target", lambda target: device)
    return WatchedGpu(limit=60)


@pytest.fixture
def tried(tmp_path):
    """Run a variant with an assembler at a level. Returns its first failure, or the last result."""
    path = tmp_path / "case.py"
    path.write_text(CASE)
    (loaded,) = load(path)

    def run(backend, variant, program=FLIPPING, level=3, **more):
        item = Item(loaded, variant, TARGET, backend.name)
        by = (assembler_at(program, level),)
        return run_item(item, backend, "quick", stop=True, assemblers=by, **more).results[-1]

    return run


@pytest.fixture
def planted(tmp_path):
    def write(action):
        path = tmp_path / "planted_ptxas"
        path.write_text(PLANTED.format(action=action))
        path.chmod(0o755)
        return path

    return write


def test_machine_code_that_is_wrong_at_one_level_alone_is_the_assemblers_fault(backend, tried, tmp_path):
    found = tried(backend, "right", dump=tmp_path)
    assert (found.verdict, found.diagnosis) == ("fail", "ptxas")
    assert found.words.endswith("; ptxas 99.9.1 -O3 is at fault, ptxas 99.9.1 -O0 is right")
    assert found.key.assembler == found.ptxas == assembler_at(FLIPPING, 3).label
    for words in (
        "the assembler is at fault, not this case: ptxas 99.9.1 -O3 makes machine code that gives other bits",
        "at fault    ptxas 99.9.1 -O3 (",
        "right       ptxas 99.9.1 -O0 (",
        "what it is  ptxas is NVIDIA's assembler",
        "known by    three opinions on one PTX: ptxdiff's emulator",
        "the machine code of ptxas 99.9.1 -O0 gives the same bits, and that of ptxas 99.9.1 -O3 gives others",
        "report to   NVIDIA: developer.nvidia.com/bugs",
        "title       ptxas 99.9.1 -O3 gives wrong results for sm_90a, ptxas 99.9.1 -O0 does not",
        "say also    your GPU and driver (nvidia-smi",
        "kernel.ptx is the attached file; nvdisasm -c",
        f"attach      {tmp_path}/",
        f"by hand     {FLIPPING} -O3 --fmad=false --gpu-name=sm_90a kernel.ptx -o wrong.cubin",
        f"{FLIPPING} -O0 --fmad=false --gpu-name=sm_90a kernel.ptx -o right.cubin",
        "work round  assemble at -O0: ptx_options='-O0'",
        f"--ptx-assembler={FLIPPING} --ptx-opt=3",
    ):
        assert words in found.message, (words, found.message)


def test_the_message_has_the_input_and_the_emulators_value(backend, tried):
    said = tried(backend, "right").message
    story = said[said.index("diagnosis") :]
    x, meant, given = (int(re.search(rf"{name} +(0x\w+)", story)[1], 16) for name in ("input x", "emulator", "-O3 "))
    assert meant == x ^ 0x5A
    assert given == x | 0x5A
    assert meant != given
    assert "run the command behind 'repeat' with --ptx-dump=DIR" in story


def test_the_attachment_is_reduced_and_shows_the_fault(backend, tried, tmp_path):
    tried(backend, "right", dump=tmp_path)
    (file,) = tmp_path.glob("*.ptx")
    text = file.read_text()
    assert text.startswith("// ptxas 99.9.1 -O3 gives wrong results for sm_90a, ptxas 99.9.1 -O0 does not\n")
    assert "// ptxas 99.9.1 -O3 makes machine code that gives other bits" in text
    assert "// launch: 1 blocks of 128 threads" in text
    assert "// parameters: address of x (256 bytes), address of y (256 bytes), 256" in text
    assert "xor.b32" in text
    assert ".loc" not in text
    assert ".section" not in text
    whole = [line for line in text.splitlines() if line.rstrip().endswith(";") and ".reg" not in line]
    assert len(whole) < 40


@pytest.mark.sample(2)
@pytest.mark.parametrize("bound", [True, False], ids=["with CUDA's driver", "without"])
def test_tritons_own_assembler_is_examined_too(backend, tried, monkeypatch, tmp_path, bound):
    """Without any option: what Triton launches is wrong, and its ptxas gives the same code when called by hand."""

    def bindings():
        if not bound:
            raise driver.NoDriver("no driver")

    monkeypatch.setattr(driver, "bindings", bindings)
    path = tmp_path / "case.py"
    (loaded,) = load(path)
    monkeypatch.setattr(ptxas_fault, "tritons_own", lambda *_, **__: assembler_at(FLIPPING, 3, bundled=True))
    monkeypatch.setenv("PTXDIFF_TEST_PTXAS", str(FLIPPING))
    own = Device(GPU, begin="device_stand_in:begin_as_emulator")
    monkeypatch.setattr(gpu_process, "of_target", lambda target: own)
    found = run_item(Item(loaded, "right", TARGET, "gpu"), backend, "quick", stop=True).results[-1]
    own.close()
    assert (found.diagnosis, found.key.assembler) == ("ptxas", "")
    assert "github.com/triton-lang/triton" in found.message


@pytest.mark.parametrize(
    ("variant", "action"),
    [
        (
            "right",
            'sed s/xor.b32/or.b32/ "$source" > "$made"',
        ),  # every level is wrong: nothing agrees with the emulator
        ("wrong", 'cp "$source" "$made"'),  # the failing level agrees with the emulator: the variant is wrong
        ("both wrong", '[ "$lowest" ] && cp "$source" "$made" || sed s/xor.b32/or.b32/ "$source" > "$made"'),
    ],
)
def test_the_diagnosis_is_not_given_without_proof(backend, tried, planted, variant, action):
    found = tried(backend, variant, planted(action))
    assert (found.verdict, found.diagnosis) == ("fail", "")
    assert "ptxas is NVIDIA" not in found.message


def test_bits_that_are_not_repeated_are_not_blamed_on_the_assembler(backend, tried, planted, tmp_path):
    """The machine code is wrong the first time it is assembled, and right every other time."""
    action = f'[ -e {tmp_path}/once ] && cp "$source" "$made" || sed s/xor.b32/or.b32/ "$source" > "$made"'
    honest = backend.run

    class Once:
        name = "gpu"
        unavailable = staticmethod(backend.unavailable)
        run_built = staticmethod(backend.run_built)

        def run(self, job):
            outcome = honest(job)
            (tmp_path / "once").touch()
            assembling.forget()
            return outcome

    found = tried(Once(), "right", planted(action))
    assert (found.verdict, found.diagnosis) == ("fail", "")


def test_a_finding_beside_the_emulators_bits_is_not_the_assemblers_fault(backend, tried, planted):
    """The outputs of the failing level agree with the emulator, so no other level explains its stray write."""

    class Overwrites:
        name = "gpu"
        unavailable = staticmethod(backend.unavailable)
        run_built = staticmethod(backend.run_built)

        def run(self, job):
            outcome = backend.run(job)
            beyond = ("4 bytes outside y were overwritten",) if job.setup.assembler.level == 3 else ()
            return dataclasses.replace(outcome, findings=beyond)

    found = tried(Overwrites(), "right", planted('cp "$source" "$made"'))
    assert (found.verdict, found.diagnosis) == ("fail", "")


def test_a_crash_on_the_assembler_backend_is_the_assemblers_fault(backend, tried, tmp_path):
    for where in (AssemblerBackend("never"), backend):
        found = tried(where, "crashes", dump=tmp_path)
        assert (found.verdict, found.diagnosis) == ("fail", "ptxas")
        assert "ptxas 99.9.1 -O3 ended by signal 11 (SIGSEGV)" in found.words
        assert "ptxas 99.9.1 -O3 is at fault, ptxas 99.9.1 -O0 assembles it" in found.words
        assert "crashes on this PTX, instead of assembling it" in found.message
        assert "developer.nvidia.com/bugs" in found.message
        assert "repeat    pytest" in found.message
    file = next(tmp_path.glob("*assembler*.ptx"))
    assert "brev.b32" in file.read_text()


def test_a_crash_that_does_not_repeat_is_an_error_that_runs_again(tried, planted, tmp_path):
    action = f'[ -e {tmp_path}/once ] && cp "$source" "$made" || {{ touch {tmp_path}/once; kill -SEGV $$; }}'
    found = tried(AssemblerBackend("never"), "right", planted(action))
    assert found.verdict == "error"
    assert "but not when it was called again" in found.words


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_a_ptxas_killed_by_the_system_is_not_at_fault(tried, planted, signal):
    """For example if memory runs out."""
    found = tried(AssemblerBackend("never"), "right", planted(f"kill -{signal} $$"))
    assert (found.verdict, found.diagnosis) == ("error", "")


def test_a_hang_is_the_assemblers_fault_and_ends_in_time(tried, planted, monkeypatch):
    monkeypatch.setattr(assembling, "PTXAS_TIMEOUT", 1.0)
    found = tried(AssemblerBackend("never"), "right", planted('[ "$lowest" ] && cp "$source" "$made" || sleep 600'))
    assert (found.verdict, found.diagnosis) == ("fail", "ptxas")
    assert found.words.endswith(
        "ptxas 99.9.2 -O3 did not finish in 1 s; ptxas 99.9.2 -O3 is at fault, ptxas 99.9.2 -O0 assembles it"
    )
    assert "does not end on this PTX" in found.message


def test_a_refusal_is_no_fault_of_the_assembler(tried, planted):
    found = tried(AssemblerBackend("never"), "right", planted('echo "ptxas fatal   : no such instruction"; exit 255'))
    assert (found.verdict, found.diagnosis) == ("error", "")


def test_machine_code_that_stops_the_device_is_the_assemblers_fault(backend, tried, planted, tmp_path):
    stops = '[ "$lowest" ] && cp "$source" "$made" || sed "s/^.*xor.b32.*$/trap;/" "$source" > "$made"'
    found = tried(backend, "right", planted(stops), dump=tmp_path)
    assert (found.verdict, found.diagnosis) == ("fail", "ptxas"), found.message
    assert found.words.endswith("; ptxas 99.9.2 -O3 is at fault, ptxas 99.9.2 -O0 is right")
    assert "makes machine code that stops the device, where this PTX does not stop it" in found.message
    assert "gives the emulator's bits for the same PTX" in found.message
    assert len(list(tmp_path.glob("*.ptx"))) == 1


def test_a_device_that_stops_at_every_level_proves_nothing(backend, tried, planted):
    found = tried(backend, "right", planted('sed "s/^.*xor.b32.*$/trap;/" "$source" > "$made"'))
    assert (found.verdict, found.diagnosis) == ("error", "")


def test_a_sweep_that_did_not_end_is_an_error_with_its_own_message(backend, tmp_path):
    """The device makes a sweep's inputs, so that nothing can be run again with them."""
    path = tmp_path / "flip.py"
    path.write_text(CASE)
    (loaded,) = load(path)
    setup = Setup(shape=(1024,), pack=4, block=256)
    job = Job(loaded.case, loaded.name, path, "right", loaded.case.variants["right"], TARGET, setup, {})
    outcome = Outcome("error", "the judge does not run on the device", artifacts=Artifacts(ptx=".version 8.1"))
    assert blamed(job, outcome, backend, (), lambda job, outcome: True) is None
