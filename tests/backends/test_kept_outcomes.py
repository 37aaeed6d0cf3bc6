"""Outcomes that the emulator backend keeps: who gets one cannot change it for the next."""

from pathlib import Path

import numpy as np
import pytest

from harness import Case, asm
from harness.backends.emulator import EmulatorBackend
from harness.jobs import Job, Setup
from references.formats import U8

CASE = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=lambda x: x,
    variants={"v": asm("xor.b32 $0, $1, 0x01010101;", constraints="=r,r", pack=4)},
)


@pytest.mark.parametrize("context", ["straight", "shared"])
def test_kept_bits_cannot_be_written(context, monkeypatch):
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    backend = EmulatorBackend()
    setup = Setup(pack=4, shape=(8,), context=context)
    job = Job(CASE, "c", Path("c.py"), "v", CASE.variants["v"], "sm_90a", setup, {"x": np.arange(8, dtype=np.uint8)})
    for _ in range(2):
        bits = backend.run(job).outputs["y"]
        with pytest.raises(ValueError, match="read-only"):
            bits[0] = 77
        assert bits.tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
