"""Values that pass from thread to thread by copies, products and atomics are traced to their origins."""

import pytest

from harness.cli import main
from tests.comparing.kernels import CASE
from tests.comparing.passages import AFTER, BEFORE, PASSAGES, WHO, passage, threads


@pytest.fixture
def compare(tmp_path, capsys):
    """Compare two modules: where they part."""

    def run(base, other, block):
        (tmp_path / "base.ptx").write_text(base)
        (tmp_path / "other.ptx").write_text(other)
        (tmp_path / "case.py").write_text(CASE.replace("FUSION", "False"))
        files = [str(tmp_path / name) for name in ("base.ptx", "other.ptx")]
        code = main(["compare", *files, "--like", str(tmp_path / "case.py"), "--block", str(block)])
        said = capsys.readouterr()
        said = said.out + said.err
        return code, said, said.partition("parting ")[2]

    return run


@pytest.mark.parametrize("name", PASSAGES)
def test_a_fault_before_and_one_behind(compare, name):
    """First one thread's value is made with another constant; then the value that was passed on is changed."""
    base, block = passage(name), threads(name)
    wrong = BEFORE.replace("0f40466666", "0f40800000")
    code, said, parting = compare(base, base.replace(BEFORE, wrong), block)
    assert code == 1, said
    assert f"  {BEFORE}" in parting, said
    assert f"  {wrong}" in parting, said
    assert f"thread {WHO} of block (0, 0, 0)" in parting, said
    wrong = AFTER.replace("0f3F8CCCCD", "0f40000000")
    code, said, parting = compare(base, base.replace(AFTER, wrong), block)
    assert code == 1, said
    assert f"  {wrong}" in parting, said


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("wgmma", "%p7, 1, 1, 0;", "%p7, -1, 1, 0;"),
        ("cp.async", "cp.async.ca.shared.global [%r5], [%d5], 4;", "cp.async.ca.shared.global [%r5], [%d5], 4, 0;"),
        ("red", "red.shared.add.f32 [%r10], %f2;", "red.shared.add.f32 [%r10], 0f3F800000;"),
        ("tcgen05.mma", "0x08040010", "0x08042010"),
    ],
)
def test_a_fault_in_what_passes_values_on(compare, name, right, wrong):
    """A matrix that is negated, a copy of nothing, another operand, a flag in an instruction descriptor."""
    base = passage(name)
    assert base.count(right) == 1
    code, said, parting = compare(base, base.replace(right, wrong), threads(name))
    assert code == 1, said
    assert wrong in parting, said
    assert BEFORE not in parting, said
