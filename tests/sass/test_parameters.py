"""A ptxas whose code reads bytes between the parameters is seen; one that loads more than a parameter is right."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import UndefinedBits
from ptxdiff.triton.targets import assembler, probe

TARGETS = ("sm_80", "sm_90a", "sm_100a")
KERNEL = """.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n, .param .u64 last, .param .u16 h) {{
.reg .b64 %p, %q, %l; .reg .b32 %a, %t, %h; .reg .b16 %s;
ld.param.u64 %p, [out]; ld.param.u32 %a, [n]; ld.param.u64 %l, [last]; ld.param.u16 %s, [h];
mov.u32 %t, %tid.x; mul.wide.u32 %q, %t, 4; add.u64 %p, %p, %q;
cvt.u32.u16 %h, %s; add.u32 %a, %a, %h; cvt.u32.u64 %h, %l; xor.b32 %a, %a, %h;
st.global.u32 [%p], %a; ret; }}
"""
MISTAKES = {
    "the word behind a word": ("ld.param.u32 %a, [n]", "ld.param.u32 %a, [n+4]"),
    "a pair for a word": (
        "ld.param.u32 %a, [n]", "ld.param.v2.u32 {{%a, %h}}, [n]; add.u32 %a, %a, %h"
    ),
    "a word for half of one": ("ld.param.u16 %s, [h];", "ld.param.u32 %h, [h]; shr.u32 %h, %h, 4; cvt.u16.u32 %s, %h;"),
}  # fmt: skip
"""What the planted ptxas reads in another way, each in PTX that the real one accepts."""


def _planted(folder, real: str, right: str, wrong: str):
    """A ptxas that makes a mistake: it puts a text in the place of another, and assembles that."""
    path = folder / "ptxas"
    path.write_text(f"""#!{sys.executable}
import pathlib, subprocess, sys
for word in sys.argv[1:]:
    if word.endswith(".ptx"):
        file = pathlib.Path(word)
        file.write_text(file.read_text().replace({right!r}, {wrong!r}))
sys.exit(subprocess.run([{real!r}, *sys.argv[1:]]).returncode)
""")
    path.chmod(0o755)
    return str(path)


def _run(target: str, ptxas: str | None) -> list[int]:
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    out = np.zeros(32, np.uint32)
    run_ptx(KERNEL.format(target=target), 1, 32, out, 0x11223344, 7, 0x5566, level="sass", ptxas=ptxas)
    return out.tolist()


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", TARGETS)
def test_each_parameter_is_read(target: str) -> None:
    assert _run(target, None) == [0x11223344 + 0x5566 ^ 7] * 32


@pytest.mark.sample(6)
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("target", TARGETS)
def test_a_ptxas_that_reads_what_no_parameter_has_is_seen(target: str, mistake: str, tmp_path) -> None:
    right, wrong = MISTAKES[mistake]
    planted = _planted(tmp_path, assembler(target).path, right, wrong.format())
    with pytest.raises(UndefinedBits):
        _run(target, planted)
