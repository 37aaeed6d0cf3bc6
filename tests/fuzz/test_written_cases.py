"""The case file written for a finding: it passes with the known fault, and fails if the fault is gone or has changed.

There is no GPU: planted assemblers give PTX as machine code, and a process in the GPU's place emulates it.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ptxdiff import Case, PtxasFailure, asm
from ptxdiff.backends import gpu_process
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.backends.gpu_process import WatchedGpu
from ptxdiff.fuzz import files
from ptxdiff.fuzz.campaign import finding_of
from ptxdiff.fuzz.execution import emulated, inputs_of, text_of
from ptxdiff.fuzz.generate import program
from ptxdiff.model.load import load
from ptxdiff.model.variants import CaseError, ExpectedFailure
from ptxdiff.processes.child import Device
from ptxdiff.processes.gpus import Gpu
from ptxdiff.references.formats import U32
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from ptxdiff.triton.ptxas import assembler_at

pytest.importorskip("torch")
pytest.importorskip("triton")

TARGET = "sm_90a"
GPU = Gpu("GPU-7", "a GPU", "GPU-0-test", TARGET, 1 << 30)
FLIPPING = Path(__file__).with_name("flipping_ptxas.sh")
SEED = "w/1"
TEXT = """.version 8.1
.target sm_90a
.address_size 64
.visible .entry p0(.param .u64 p0_in, .param .u64 p0_out) .maxntid 128
{
.reg .b32 %r0, %r1, %r2, %r3, %r4, %thread; .reg .b64 %in, %out, %at;
ld.param.u64 %in, [p0_in]; ld.param.u64 %out, [p0_out];
mov.u32 %thread, %tid.x; mul.wide.u32 %at, %thread, 16;
add.u64 %in, %in, %at; add.u64 %out, %out, %at;
ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%in];
INSTRUCTION
st.global.v4.u32 [%out], {%r4, 0, 0, 0};
ret;
}
"""


def finding(kind="wrong", instruction="xor.b32 %r4, %r0, %r1;", text=TEXT, **others):
    whole = text.replace("INSTRUCTION", instruction)
    fields = {
        "kind": kind, "seed": SEED, "assemblers": ["ptxas 99.9 -O3"], "right": ["ptxas 99.9 -O0"], "size": 1,
        "skeleton": instruction.split()[0], "text": whole, "inputs": [1, 2, 3, 4], "expected": [3, 0, 0, 0],
        "given": [7, 0, 0, 0], **others,
    }  # fmt: skip
    return finding_of(fields)


@pytest.fixture(scope="module")
def device():
    sys.path.insert(0, str(Path(__file__).parents[1] / "backends"))
    made = Device(GPU, begin="device_stand_in:begin_as_emulator")
    yield made
    made.close()


@pytest.fixture
def gpu(device, monkeypatch):
    monkeypatch.setattr(gpu_process, "gpus", lambda: (GPU,))
    monkeypatch.setattr(gpu_process, "of_target", lambda target: device)
    return WatchedGpu(limit=60)


@pytest.fixture
def ran(tmp_path):
    """Run a written case with a backend, and an assembler at a level."""
    (place,) = files.write(tmp_path, [finding()], (), TARGET)

    def run(backend, program=None, level=3, place=place):
        (loaded,) = load(place / "case.py")
        item = Item(loaded, "program", TARGET, backend.name)
        by = (assembler_at(program, level),) if program else (None,)
        return run_item(item, backend, "quick", assemblers=by)

    return run


def planted(tmp_path, action, release="99.9"):
    path = tmp_path / f"ptxas_{release}"
    path.write_text(FLIPPING.read_text().replace("sed s/xor.b32/or.b32/", action).replace("99.9", release))
    path.chmod(0o755)
    return path


def test_the_emulator_is_right(ran):
    done = ran(EmulatorBackend())
    assert done.verdict == "pass", done.results[-1].message
    assert not any(r.expected_failure for r in done.results)
    rows = {"rows/1", "rows/2", "rows/3"}
    assert {r.key.input_set for r in done.results} == {"generated/1", "edges/1", "random/1"} | rows


def test_the_file_passes_with_the_known_fault(gpu, ran):
    done = ran(gpu, FLIPPING)
    assert all(r.expected_failure or r.verdict == "pass" for r in done.results), done.results[-1].message
    assert any(r.expected_failure and r.diagnosis == "ptxas" for r in done.results)
    assert ran(gpu, FLIPPING, 0).verdict == "pass"


def test_the_file_fails_if_the_fault_is_gone(gpu, ran, tmp_path):
    done = ran(gpu, planted(tmp_path, "cat"))
    assert done.verdict == "fail"
    assert "was known as ptxas 99.9 -O3 to be at fault (wrong) and is not" in done.results[-1].words


def test_the_file_fails_if_another_assembler_has_the_fault(gpu, ran, tmp_path):
    done = ran(gpu, planted(tmp_path, "sed s/xor.b32/or.b32/", "98.7"))
    assert done.verdict == "fail"
    assert not any(r.expected_failure for r in done.results)


def test_the_file_fails_on_a_crash_instead_of_wrong_bits(gpu, ran, tmp_path):
    done = ran(gpu, planted(tmp_path, "kill -SEGV $$; sed s/a/a/"))
    assert done.verdict == "fail"


def test_a_crash_is_expected_as_a_crash(gpu, ran, tmp_path):
    crash = finding(
        "crashed", "brev.b32 %r4, %r0;", right=[], words='ended """by signal 11\\', inputs=[], given=[], expected=[]
    )
    (place,) = files.write(tmp_path / "crash", [crash], (), TARGET)
    done = ran(gpu, FLIPPING, place=place)
    assert all(r.expected_failure for r in done.results), done.results[-1].message
    repaired = planted(tmp_path, "sed s/xor.b32/or.b32/")
    repaired.write_text(repaired.read_text().replace("kill -SEGV", ": kill"))
    gone = ran(gpu, repaired, place=place)
    assert gone.verdict == "fail"
    assert "(crashed) and is not" in gone.results[-1].words


def test_a_fault_without_a_right_assembler_is_not_excused(tmp_path):
    (place,) = files.write(tmp_path, [finding(right=[])], (), TARGET)
    (loaded,) = load(place / "case.py")
    assert loaded.case.variants["program"].expected_failure is None


def test_an_emulator_with_other_outputs_than_written_fails(ran, tmp_path):
    (file,) = tmp_path.glob("*/words.json")
    words = json.loads(file.read_text())
    words["expected"][3][0] ^= 1
    file.write_text(json.dumps(words))
    done = ran(EmulatorBackend())
    assert done.verdict == "fail"
    assert all("1 of 512 codes differ" in r.words for r in done.results)


def test_the_reference_refuses_other_inputs(tmp_path):
    (place,) = files.write(tmp_path, [finding()], (), TARGET)
    (loaded,) = load(place / "case.py")
    with pytest.raises(ValueError, match="the inputs of its finding alone"):
        loaded.case.reference(np.zeros((128, 4), np.int64))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"assemblers": {}}, "name assemblers"),
        ({"assemblers": {"gcc": "wrong"}}, "names no assembler"),
        ({"assemblers": {"13.4": "odd"}}, "none of wrong, crashed, hung"),
        ({"assemblers": {"13.4": "wrong"}, "diagnosis": "missing early clobber"}, "no diagnosis"),
    ],
)
def test_a_declared_ptxas_failure_must_be_complete(given, words):
    with pytest.raises(CaseError, match=words):
        PtxasFailure(**given)


def test_other_expected_failures_are_unchanged():
    assert ExpectedFailure("missing early clobber").contexts == ("straight",)
    made = Case(
        inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x,
        variants={"own": asm("mov.b32 $0, $1;", expected_failure=PtxasFailure(assemblers={"13.4 -O3": "wrong"}))},
    )  # fmt: skip
    assert made.variants["own"].expected_failure.diagnosis == "ptxas"


def test_the_inputs_are_those_of_the_finding(tmp_path):
    one = program(SEED, 90, {"bits": 1.0})
    text = text_of([one], TARGET)
    (place,) = files.write(tmp_path, [finding(text=text, instruction="xor.b32 x")], (), TARGET)
    words = json.loads((place / "words.json").read_text())
    assert words["inputs"] == inputs_of(SEED).tolist()
    assert words["expected"] == emulated(text, "p0", np.array(words["inputs"], np.uint32)).tolist()
