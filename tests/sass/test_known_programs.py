"""Programs that ptxas compiled wrongly on an H200, as machine code on the CPU: the same wrong words.

`tests/fuzz/ptxas_faults.json` has the words that the device gave with ptxas 12.8 and 13.5. Those releases are tried
where `PTXDIFF_FAULTY_PTXAS` names them (paths, separated as in PATH); the releases that Triton carries always.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.fuzz.assemblers import Ptxas, assembler
from ptxdiff.fuzz.execution import THREADS, MachineCodeInterpreter, NotRead
from ptxdiff.fuzz.judge import interpreted_proof
from tests.support.sass.fault_reports import target_of
from tests.support.sass.ptxas_releases import release

FAULTS = json.loads((Path(__file__).parents[1] / "fuzz" / "ptxas_faults.json").read_text())
NEWEST = [f for f in FAULTS if "ptxas 13.5 -O3" in f["assemblers"]]
LIVE = [f for f in NEWEST if "ptxas 12.8 -O3" in f["assemblers"]]
"""Faults that hardware showed with 12.8 and with 13.5: all releases between have them too."""


def _words(fault, by: Ptxas):
    inputs = np.tile(np.array(fault["inputs"], np.uint32), (THREADS, 1))
    target = target_of(fault)
    done = by.assemble(fault["text"], target)
    assert done.ended == "assembled", done.words
    (found,) = MachineCodeInterpreter(target).ran(done.cubin, [inputs])
    return (found if isinstance(found, NotRead) else found[0][0].tolist()), inputs


def _tried(fault, version: str) -> None:
    """The words of -O3 are those of the device, unless a form has no row; those of -O0 are right."""
    path = release(version)
    wrong, inputs = _words(fault, assembler(path, 3))
    if isinstance(wrong, NotRead):
        pytest.skip(wrong.words)
    assert wrong == fault["given"]
    assert _words(fault, assembler(path, 0))[0] == fault["expected"]
    doubt, first_difference = interpreted_proof(fault["text"], target_of(fault), assembler(path, 3), inputs, 0)
    assert doubt == "", "ptxas is accused"
    assert first_difference.startswith("values first differ at 0x")


@pytest.mark.sample(8)
@pytest.mark.parametrize("fault", LIVE, ids=[f["skeleton"] for f in LIVE])
def test_wrong_words_are_those_of_hardware(fault) -> None:
    _tried(fault, "12.9")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["12.8", "13.4"])
@pytest.mark.parametrize("fault", LIVE, ids=[f["skeleton"] for f in LIVE])
def test_wrong_words_of_other_releases_are_those_of_hardware(fault, version: str) -> None:
    _tried(fault, version)


@pytest.mark.slow
@pytest.mark.parametrize("fault", NEWEST, ids=[f"{f['mechanism']}, {f['skeleton']}" for f in NEWEST])
def test_wrong_words_of_the_newest_release_are_those_of_hardware(fault) -> None:
    """On an H200 or an H100; of three programs only the CPU ran the machine code, and this repeats it."""
    _tried(fault, "13.5")
