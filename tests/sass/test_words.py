"""Machine words that are disassembled once, against nvdisasm's reading of the whole cubin."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from ptxdiff.backends import create
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.execution import text_of
from ptxdiff.fuzz.generate import FAMILIES, program
from ptxdiff.model.targets import capability
from ptxdiff.sass import words
from ptxdiff.sass.cubin import MachineCode, disassembled, machine_codes
from ptxdiff.sass.words import WordDecoder
from ptxdiff.triton.assemble import cubin_of
from ptxdiff.triton.targets import assembler as bundled
from ptxdiff.triton.targets import tool
from tests.support.emulator import tensor_memory_text


@functools.cache
def _cubins(target: str) -> list[bytes]:
    if said := create("sass").unavailable(target):
        pytest.skip(said)
    own = bundled(target)
    weights = dict.fromkeys(FAMILIES, 1.0)
    programs = [program(f"words/{k}", capability(target), weights) for k in range(24)]
    return [assembler(own.path, n, own.options).assemble(text_of(programs, target), target).cubin for n in (0, 3)]


def _meaning(code: MachineCode) -> list[object]:
    """A kernel without the names of places."""
    labels = {code.name: 0, **code.function.labels}
    return [
        (i.address, i.guard, i.opcode, i.modifiers, i.low, i.high,
         [labels[o.name] if o.kind == "label" else o for o in i.operands])
        for i in code.function.instructions
    ]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_words_and_whole_cubins_have_the_same_instructions(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cubins = _cubins(target)
    decoder = WordDecoder(target, tool("nvdisasm"))
    monkeypatch.setattr(words, "disassembled", lambda *_, **__: pytest.fail("the whole cubin was disassembled"))
    found = [*decoder.codes(cubins), *decoder.codes(cubins)]  # first learnt, then known
    read = [machine_codes(cubin, disassembled(cubin, tool("nvdisasm"), keep=False)) for cubin in cubins]
    for whole, codes in zip([*read, *read], found, strict=True):
        assert set(codes) == set(whole)
        for name, code in whole.items():
            assert _meaning(codes[name]) == _meaning(code)
            assert replace(codes[name], function=code.function) == code


@pytest.mark.slow
def test_a_jump_where_any_lane_jumps_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    if said := create("sass").unavailable("sm_100a"):
        pytest.skip(said)
    text = tensor_memory_text.text(tensor_memory_text.waited(), 32)
    cubin = cubin_of(text, bundled("sm_100a").path, 0, contracts=True)
    whole = machine_codes(cubin, disassembled(cubin, tool("nvdisasm"), keep=False))["k"]
    assert any("BRA.U.ANY" in i.text for i in whole.function.instructions)
    monkeypatch.setattr(words, "disassembled", lambda *_, **__: pytest.fail("the whole cubin was disassembled"))
    (codes,) = WordDecoder("sm_100a", tool("nvdisasm")).codes([cubin])
    assert _meaning(codes["k"]) == _meaning(whole)


@pytest.mark.slow
def test_a_place_that_is_named_in_another_way_is_read_with_the_whole_cubin(monkeypatch: pytest.MonkeyPatch) -> None:
    (cubin, _) = _cubins("sm_90a")
    decoder = WordDecoder("sm_90a", tool("nvdisasm"))
    monkeypatch.setattr(words, "_PLACES", words.re.compile(r"(never)(at)(all)"))
    read = []
    real = words.disassembled
    monkeypatch.setattr(words, "disassembled", lambda *a, **k: read.append(a) or real(*a, **k))
    (codes,) = decoder.codes([cubin])
    assert len(read) == 1
    assert "p0" in codes


def test_a_target_that_nvdisasm_lacks_as_raw_code_is_read_with_the_whole_cubin() -> None:
    (cubin, _) = _cubins("sm_90a")
    (codes,) = WordDecoder("sm_1", tool("nvdisasm")).codes([cubin])
    assert "p0" in codes


def test_what_is_no_cubin_is_refused() -> None:
    (found,) = WordDecoder("sm_90a", tool("nvdisasm")).codes([b"no cubin"])
    assert isinstance(found, Exception)
