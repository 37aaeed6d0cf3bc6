"""Programs that ptxas compiled wrongly on an H200: the emulator gives the bits that the PTX means, not those of ptxas.

`ptxas_faults.json` has each program as the fuzzer wrote it: the reduced program, one thread's inputs, the bits that the
ISA requires, and the bits of the machine code of `assemblers`. The machine code of `right` gave the required bits.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.fuzz.oracle import THREADS, emulated

FAULTS = json.loads(Path(__file__).with_name("ptxas_faults.json").read_text())


@pytest.mark.parametrize("fault", FAULTS, ids=[f["skeleton"] for f in FAULTS])
def test_the_emulator_gives_the_bits_that_the_program_means(fault):
    inputs = np.tile(np.array(fault["inputs"], np.uint32), (THREADS, 1))
    given = emulated(fault["text"], "p0", inputs)
    assert given[0].tolist() == fault["expected"]
    assert fault["expected"] != fault["given"]
    assert fault["right"]


def test_the_table_names_versions_and_levels():
    assert {a for f in FAULTS for a in f["assemblers"]} == {"ptxas 12.8 -O3", "ptxas 13.5 -O3"}
    assert {a for f in FAULTS for a in f["right"]} == {"ptxas 12.8 -O0", "ptxas 13.5 -O0", "ptxas 13.5 -O3"}
