"""Values that copies, products and atomics pass between threads are followed to the instruction that made them."""

import pytest

from ptxdiff.cli import main
from tests.support.comparing.kernels import CASE
from tests.support.comparing.passages import AFTER, BEFORE, PASSAGES, WHO, passage, threads


@pytest.fixture
def compare(tmp_path, capsys):
    """A function that compares two modules and returns the exit code, the output, and its part on the traces."""

    def run(base, other, block):
        (tmp_path / "base.ptx").write_text(base)
        (tmp_path / "other.ptx").write_text(other)
        (tmp_path / "case.py").write_text(CASE.replace("FUSION", "False"))
        files = [str(tmp_path / name) for name in ("base.ptx", "other.ptx")]
        code = main(["compare", *files, "--like", str(tmp_path / "case.py"), "--block", str(block)])
        said = capsys.readouterr()
        said = said.out + said.err
        return code, said, said.partition("  traces ")[2]

    return run


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", PASSAGES)
def test_a_fault_before_and_a_fault_after_the_passage(compare, name):
    """A wrong constant before the value is passed on, and one after it."""
    base, block = passage(name), threads(name)
    wrong = BEFORE.replace("0f40466666", "0f40800000")
    code, said, shown = compare(base, base.replace(BEFORE, wrong), block)
    assert code == 1, said
    assert f"  {BEFORE}" in shown, said
    assert f"  {wrong}" in shown, said
    assert f"thread {WHO} of block (0, 0, 0)" in shown, said
    wrong = AFTER.replace("0f3F8CCCCD", "0f40000000")
    code, said, shown = compare(base, base.replace(AFTER, wrong), block)
    assert code == 1, said
    assert f"  {wrong}" in shown, said


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("wgmma", "%p7, 1, 1, 0;", "%p7, -1, 1, 0;"),
        ("cp.async", "cp.async.ca.shared.global [%r5], [%d5], 4;", "cp.async.ca.shared.global [%r5], [%d5], 4, 0;"),
        ("red", "red.shared.add.f32 [%r10], %f2;", "red.shared.add.f32 [%r10], 0f3F800000;"),
        ("tcgen05.mma", "0x08040010", "0x08042010"),
    ],
)
def test_a_fault_in_the_instruction_that_passes_values_on(compare, name, right, wrong):
    """The fault is a negated matrix, a copy of no bytes, another operand, or a flag in an instruction descriptor."""
    base = passage(name)
    assert base.count(right) == 1
    code, said, shown = compare(base, base.replace(right, wrong), threads(name))
    assert code == 1, said
    assert wrong in shown, said
    assert BEFORE not in shown, said
