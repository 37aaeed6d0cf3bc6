"""Launches of machine code in a file, and what counts as the same on a device."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxdiff.backends import recorded
from ptxdiff.conformance import taught
from ptxdiff.emulator import Buffer, BufferPointer
from ptxdiff.sass.cubin import MachineCode, Parameter
from tests.support.sass.assembly import LOAD, STORE, written

BODY = f"{LOAD} IADD3 R5, R4, 0x7, R0 {STORE}"
WORDS = np.arange(100, 132, dtype=np.uint32)


def recorder(body: str = BODY, threads: int = 32, extra: int = 0) -> recorded.LaunchRecorder:
    """A launch: an output, of `extra` words more than there are threads, and an input, 8 bytes from its start."""
    found = recorded.LaunchRecorder()
    output = Buffer(np.zeros(threads + extra, np.uint32), "out", defined=False, residue=8)
    values = [output, BufferPointer(Buffer(np.concatenate([[5, 5], WORDS]).astype(np.uint32), "in"), 8)]
    places = (Parameter(0, 8), Parameter(8, 8))
    code = MachineCode("kernel", "sm_80", written(body), places, 0x160, {}, 0, 0)
    found.run("a sum", "forms", "sm_80", b"a cubin", code, values, (1,), threads)
    return found


def device(launch: recorded.RecordedLaunch, blobs: dict[str, bytes]) -> list[np.ndarray]:
    """The memory of a device that did as the interpreter."""
    images = []
    for buffer in launch.buffers:
        image = np.full(buffer.residue + buffer.size + 256, recorded.FILL, np.uint8)
        image[buffer.residue : buffer.residue + buffer.size] = np.frombuffer(blobs[buffer.after], np.uint8)
        if buffer.unwritten:
            mask = np.unpackbits(np.frombuffer(blobs[buffer.unwritten], np.uint8), count=buffer.size)
            image[buffer.residue : buffer.residue + buffer.size][mask != 0] = recorded.FILL
        images.append(image)
    return images


@pytest.fixture
def read(tmp_path):
    path = tmp_path / "launches.xz"
    recorder(extra=3).write(path)
    (launch,), blobs = recorded.read(path)
    return launch, blobs


def test_a_file_has_what_ran(read) -> None:
    launch, blobs = read
    assert blobs[launch.cubin] == b"a cubin"
    assert [b.residue for b in launch.buffers] == [8, 0]
    assert list(launch.parameters) == [[0, 0], [1, 8]]
    found = np.frombuffer(blobs[launch.buffers[0].after], np.uint32)[:32]
    assert (found == WORDS + 7 + np.arange(32)).all()
    assert launch.forms["IADD3"] == taught.digest("IADD3")


def test_arguments_that_the_interpreter_takes_as_zero_are_passed_to_the_driver() -> None:
    """Triton's kernels have two parameters for scratch memory, which launches on the emulator leave out."""
    output = Buffer(np.zeros(32, np.uint32), "out", defined=False)
    places = (Parameter(0, 8), Parameter(8, 8), Parameter(16, 4))
    code = MachineCode("kernel", "sm_80", written(BODY), places, 0x160, {}, 0, 0)
    found = recorded.LaunchRecorder()
    found.run("a copy", "catalogue", "sm_80", b"a cubin", code, [output, Buffer(WORDS.copy(), "in")], (1,), 32)
    assert found.launches[0].parameters == ([0, 0], [1, 0], "00000000")


def test_the_same_bytes_are_the_same_and_any_other_byte_is_not(read) -> None:
    launch, blobs = read
    assert recorded.difference(launch, device(launch, blobs), blobs) == ""
    for buffer, place in ((0, 8 + 40), (0, 3), (0, 8 + 4 * 35), (1, 0), (1, 150)):
        images = device(launch, blobs)
        images[buffer][place] ^= 1
        words = recorded.difference(launch, images, blobs)
        assert words.startswith(f"buffer {buffer}, word"), (buffer, place)
        assert words.endswith("1 words differ")


def test_bytes_that_the_interpreter_never_wrote_are_not_compared(read) -> None:
    launch, blobs = read
    images = device(launch, blobs)
    images[0][8 + 4 * 34] ^= 1
    assert recorded.difference(launch, images, blobs) == ""


def test_a_launch_that_writes_nothing_is_no_agreement() -> None:
    found = recorder("EXIT")
    (launch,) = found.launches
    blobs = {d: found.blob(d) for b in launch.buffers for d in (b.before, b.after, b.unwritten) if d}
    assert "nothing to compare" in recorded.difference(launch, device(launch, blobs), blobs)


def test_a_damaged_file_is_refused(tmp_path, monkeypatch) -> None:
    made = recorder()
    made._blobs[made.launches[0].cubin] = b"another"
    made.write(tmp_path / "launches.xz")
    with pytest.raises(ValueError, match="damaged"):
        recorded.read(tmp_path / "launches.xz")


class FaultyDevice:
    """A device on which one kernel ends in a fault, and one gives another word."""

    def call(self, function: str, cubin: bytes, launches, blobs, limit: float):
        if any(r.name == "faults" for r in launches):
            raise RuntimeError("CUDA error: an illegal memory access")
        return [("buffer 0, word 1", [b"x"]) if r.name == "differs" else ("", []) for r in launches]


def test_a_fault_is_told_of_its_own_launch(read) -> None:
    from dataclasses import replace

    launch, blobs = read
    some = [replace(launch, name=name) for name in ("right", "faults", "differs")]
    found = [words for _, words, _ in recorded.on_device(FaultyDevice(), some, blobs)]
    assert found == ["", "fault: CUDA error: an illegal memory access", "buffer 0, word 1"]


def test_confirmations_count_for_the_recorded_definition_of_the_same_group() -> None:
    line = {"target": "sm_80", "form": "IADD3", "agreed": 2, "differed": 0, "digest": "0a", "confirmed": 9}
    result = {"target": "sm_80", "group": "forms", "forms": {"IADD3": "0a"}, "words": ""}

    def after(*results):
        return json.loads(recorded.confirmations(results, json.dumps(line) + "\n"))

    assert after(result, result)["confirmed"] == 2
    changed = after(result, result | {"words": "word 1"})
    assert (changed["confirmed"], changed["refuted"]) == (1, 1)
    for other in ({"target": "sm_90a"}, {"group": "programs"}, {"forms": {"IADD3": "0b"}}, {"forms": {}}):
        assert after(result | other) == line
