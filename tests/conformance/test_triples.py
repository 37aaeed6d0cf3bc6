"""All triples of float16: the kernel's judge and its digests, on a few values in the emulator."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxdiff.conformance import triples
from ptxdiff.emulator import Buffer, load_kernel, run_kernel

VALUES = 3  # of b: 0 and the two smallest numbers


def _ran(first: int, fma: str | None = None, values: int = VALUES, b: int = 0) -> tuple[int, list[int]]:
    """The digest of one a, and the report. b: the first value of b."""
    text = triples.kernel_text("sm_90a", *([fma] if fma else []))
    text = text.replace("mov.b32 b2, 0;", f"mov.b32 b2, {b * 0x10001:#x};")
    digests, report = np.zeros(1, np.uint64), np.zeros(1 + triples.KEPT, np.uint64)
    arguments = [Buffer(digests, "digests"), Buffer(report, "report"), first, values]
    run_kernel(load_kernel(text), arguments, (triples.SLICES,), num_threads=triples.BLOCK)
    return int(digests[0]), report.tolist()


@pytest.mark.parametrize("a", [0x0001, 0xBC01])
def test_digests_are_those_of_the_emulator(a: int) -> None:
    digest, report = _ran(a)
    assert report[0] == 0
    assert digest == triples.folded(triples.emulated(a, VALUES))


# Numbers whose products and sums are near ties, subnormal, too large, infinite, NaN, and zeros of both signs.
@pytest.mark.parametrize(
    ("a", "b"), [(0x3C01, 0x3C01), (0x8000, 0), (0x03FF, 0x1400), (0x7BFF, 0x7BFE), (0xFC00, 0), (0x7E01, 0x3C00)]
)
def test_the_judge_of_the_kernel_agrees_with_right_results(a: int, b: int) -> None:
    assert _ran(a, values=2, b=b)[1][0] == 0


PLANTED = (
    "{ .reg .pred e; fma.rn.f16x2 d, a2, b2, c{j}; setp.eq.u32 e, c{j}, 0x55555554; "
    "setp.eq.and.u32 e, b2, 0x20002, e; @e xor.b32 d, d, BIT; }"
)


@pytest.mark.parametrize("bit", ["0x1", "0x80000000"])
def test_one_wrong_bit_is_reported_with_its_place_and_changes_the_digest(bit: str) -> None:
    """The place is the pair of c that begins with 0x5554, of b 2 alone."""
    digest, report = _ran(0x3C00, PLANTED.replace("BIT", bit))
    assert report[0] == 1
    assert "0x5554/0x5555" in triples.place(report[1])
    assert triples.place(report[1]).startswith("a 0x3c00")
    assert digest != _ran(0x3C00)[0]


@pytest.mark.parametrize(
    "wrong",
    [
        "fma.rn.ftz.f16x2 d, a2, b2, c{j};",
        "fma.rn.sat.f16x2 d, a2, b2, c{j};",
        "mul.rn.f16x2 d, a2, b2; add.rn.f16x2 d, d, c{j};",
    ],
)
def test_other_instructions_are_not_taken_for_it(wrong: str) -> None:
    assert _ran(0x3C01, wrong, values=2, b=0x0401)[1][0] > 0


def test_a_journal_is_whole_only_with_every_value_and_refuses_differences(tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = [
        {"first": f, "wrong": [], "digests": ["1"] * triples.LAUNCH} for f in range(0, triples.VALUES, triples.LAUNCH)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines[1:]))
    assert triples.digest_of(triples.read(path)) == ""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(triples.digest_of(triples.read(path))) == 64
    path.write_text(json.dumps(lines[0] | {"wrong": ["a 0x0000"]}) + "\n")
    with pytest.raises(ValueError, match="differ"):
        triples.read(path)


class StandIn:
    """A GPU whose kernel gives every a the digest of its number, and finds a difference for one launch."""

    name = target = "sm_90a"
    wrong = -1

    def __init__(self) -> None:
        self.gpu, self.assembler, self.memory, self.firsts = self, None, {}, []

    def load(self, cubin: bytes) -> bytes:
        return cubin

    def kernel(self, module: bytes, name: str) -> str:
        return name

    def allocate(self, size: int) -> int:
        return size

    def upload(self, pointer: int, array: np.ndarray) -> None:
        self.memory[pointer] = array.copy()

    def download(self, array: np.ndarray, pointer: int) -> None:
        array[:] = self.memory[pointer]

    def start(self, kernel: str, arguments: list[int], blocks: int, threads: int) -> None:
        digests, report, first, values = arguments
        assert (blocks * threads * triples.PAIRS * 2, values) == (triples.LAUNCH << 16, 1 << 16)
        self.memory[digests][:] = np.arange(first, first + triples.LAUNCH)
        self.memory[report][0] = first == self.wrong
        self.firsts.append(first)


def test_a_run_continues_where_it_stopped_and_ends_at_a_difference(tmp_path, monkeypatch, capsys) -> None:
    gpu = StandIn()
    monkeypatch.setattr("ptxdiff.conformance.fetch.Hardware", lambda: gpu)
    monkeypatch.setattr("ptxdiff.conformance.kernels.assembled", lambda *_: b"")
    path = tmp_path / "journal.jsonl"
    assert triples.run(path, -1.0) == 0
    assert gpu.firsts == []
    assert triples.main([f"--journal={path}", "--seconds=60"]) == 0
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5] + lines[9:]))
    gpu.firsts = []
    whole = triples.digest_of(triples.read(path))
    assert triples.run(path, 60.0) == 0
    assert (whole, gpu.firsts) == ("", [triples.LAUNCH * k for k in range(5, 9)])
    assert triples.digest_of(triples.read(path)) in capsys.readouterr().out
    path.write_text("")
    gpu.wrong = triples.LAUNCH * 2
    assert triples.run(path, 60.0) == 1
    assert len(path.read_text().splitlines()) == 3
