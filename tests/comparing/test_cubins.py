"""Two cubins of one kernel: equal bits, or the first difference and where values part; and traces side by side."""

from __future__ import annotations

import re

import pytest

from ptxdiff.cli import main
from ptxdiff.fuzz.assemblers import assembler
from tests.support.sass.accused_case import CASE, TARGET
from tests.support.sass.ptxas_releases import release

pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.fixture
def cubins(tmp_path):
    """Cubins of one kernel at -O0 and -O3, of which the second is wrong."""
    path = release("12.8", "12.9")
    (tmp_path / "case.py").write_text(CASE.replace("EXPECTED", ""))
    text = CASE.split("'''")[1]
    for level in (0, 3):
        done = assembler(path, level).assemble(text, TARGET)
        (tmp_path / f"O{level}.cubin").write_bytes(done.cubin)
    return tmp_path


def _compare(folder, one: str, two: str) -> int:
    like = f"{folder / 'case.py'}::maximum"
    return main(["compare", str(folder / one), str(folder / two), "--like", like, "--target", TARGET])


def test_levels_that_differ_part_at_an_instruction(cubins, capsys) -> None:
    assert _compare(cubins, "O0.cubin", "O3.cubin") == 1
    said = capsys.readouterr().out
    first, second = re.search(r"d\[\d+\] is (0x\w{8}) and (0xf\w{7})", said).groups()
    assert int(first, 16) < 2**31 <= int(second, 16)
    assert "values first differ at" in said
    assert "VIMNMX3" in said
    assert f"the first has {first} from 0x" in said


def test_a_cubin_is_equal_to_itself(cubins, capsys) -> None:
    assert _compare(cubins, "O3.cubin", "O3.cubin") == 0
    assert "equal bits in" in capsys.readouterr().out


def test_a_trace_shows_ptx_beside_machine_code(cubins, capsys) -> None:
    path = release("12.8", "12.9")
    name = f"{cubins / 'case.py'}::maximum"
    assert main(["show", name, "--target", TARGET, "--trace", "1", "--assembler", path]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if " | " in line]
    paired = [(left, right) for left, right in rows if left.strip() and right.strip()]
    assert paired
    assert all(left.split(" → ")[1].strip() == right.split(" → ")[1].strip() for left, right in paired)
    assert any(not left.strip() and "VIMNMX3" in right for left, right in rows)
