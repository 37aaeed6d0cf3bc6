"""Programs on which ptxas is wrong, found on an H200: the emulator gives the bits of the PTX and not those of ptxas.

`ptxas_faults.json` has each as the fuzzer wrote it: the reduced program, one thread's inputs, what the ISA asks for,
and what the machine code of `assemblers` gave; that of `right` gave what the ISA asks for.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from harness.fuzz.oracle import THREADS, emulated

FAULTS = json.loads(Path(__file__).with_name("ptxas_faults.json").read_text())


@pytest.mark.parametrize("fault", FAULTS, ids=[f["skeleton"] for f in FAULTS])
def test_the_emulator_gives_what_the_program_says(fault):
    inputs = np.tile(np.array(fault["inputs"], np.uint32), (THREADS, 1))
    given = emulated(fault["text"], "p0", inputs)
    assert given[0].tolist() == fault["expected"]
    assert fault["expected"] != fault["given"]
    assert fault["right"]


def test_the_table_names_versions_and_levels():
    assert {a for f in FAULTS for a in f["assemblers"]} == {"ptxas 12.8 -O3", "ptxas 13.5 -O3"}
    assert {a for f in FAULTS for a in f["right"]} == {"ptxas 12.8 -O0", "ptxas 13.5 -O0", "ptxas 13.5 -O3"}
