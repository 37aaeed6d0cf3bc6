"""The message of a failure: its place, its inputs, and the arrays that a reader can load."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import triton

from ptxdiff import Case, asm, kernel, ulp
from ptxdiff.judging.judge import judge
from ptxdiff.judging.message import message
from ptxdiff.model.match import magnitude
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import Meets
from ptxdiff.records import Key, Result
from ptxdiff.references.formats import F32, U8, Scalar
from tests.support.case_sources import FLIP

ONE = 0x3F800000


def floats(*codes: int) -> np.ndarray:
    return np.array(codes, dtype=np.uint32).view(np.float32)


def message_of(case: Case, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> str:
    policy = policies(case, case.variants["v"])
    found = judge(case, policy, inputs, outputs)
    return message(Result(Key("c", "v", "sm_90a", "emulator"), "fail"), policy, found, "pytest", "reference")


def case_of(**options: object) -> Case:
    return Case(
        inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x,
        variants={"v": asm("mov.b32 $0, $1;", **options)},  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_worst_element_is_one_that_fails():
    """A NaN fails, and two results within their bound are farther from the reference than another failing result."""
    case = case_of(match=ulp(10), nan="any")
    words = message_of(case, {"x": floats(ONE, ONE, 0x7F800000)}, {"y": floats(ONE, ONE + 9, ONE)})
    assert "worst" not in words
    words = message_of(case, {"x": floats(ONE, ONE, ONE)}, {"y": floats(ONE + 11, ONE + 9, ONE + 20)})
    assert re.search(r"worst\n    output y, code 2\n", words)


def test_the_worst_element_is_in_the_domain_in_which_the_variant_is_compared():
    meets = Meets(magnitude("x", 0.5, 4.0), ulp(1))
    case = case_of(match=ulp(1 << 20), meets=meets, reference=lambda x: x)
    x = floats(ONE, ONE + 1, ONE, 0x47000000)
    found = judge(case, policies(case, case.variants["v"]), {"x": x}, {"y": x + floats(*(4 * [0])) + 0})
    assert found.passed
    y = floats(ONE + 3, ONE + 1, ONE + 4, 0x47000000 + 5000)
    words = message_of(case, {"x": x}, {"y": y})
    assert re.search(r"worst\n    output y \(the case's reference\), code 2\n", words)


@triton.jit
def nothing(x, scale, table, k, y, M, N):
    """Is not run here."""


def test_a_whole_kernel_shows_row_column_and_the_inputs_there():
    case = Case(
        inputs={"x": F32["M", "N"], "scale": F32["M"], "table": F32["N", "K"], "k": Scalar(U8)},
        outputs={"y": F32["M", "N"]},
        reference=lambda x, scale, table, k: x,
        variants={"v": kernel(nothing, grid=(1,))},
        sizes=({"M": 2, "N": 3, "K": 9},),
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = x.copy()
    y[1, 2] = 7
    scale, table = np.array([10, 20], dtype=np.float32), np.arange(27, dtype=np.float32).reshape(3, 9)
    words = message_of(case, {"x": x, "scale": scale, "table": table, "k": np.uint8(3)}, {"y": y})
    assert "output y, row 1, column 2 (code 5)" in words
    for line in (r"x\[1, 2\] +0x40a00000  5\.0", r"scale\[1\] +0x41a00000  20\.0", r"k +0x03  3"):
        assert re.search(line, words), words
    assert re.findall(r"table\[2, \d\] +0x\w+  (\S+)", words) == ["18.0", "19.0", "20.0", "21.0"], "the first few"


UNDEFINED = '''
from ptxdiff import Case, asm
from ptxdiff.references.formats import U32

case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: (x + 1) & 0xFFFFFFFF, source="a test",
    variants={"v": asm("""{ .reg .pred p;
        setp.ne.u32 p, $1, 5;
        @p add.u32 $0, $1, 1; }""", constraints="=r,r")},
)
'''


def test_undefined_bits_point_at_the_line_of_the_asm(run_cases, monkeypatch):
    """With the compiled kernel, in which the bits are found at the store that the harness wrote."""
    monkeypatch.delenv("PTXDIFF_ASM_ALONE")
    replay = "pack=1,shape=4,x=00000005"
    said = run_cases(f"--ptx-replay={replay}", undefined=UNDEFINED).stdout.str()
    assert re.search(r"asm line 3, column 12: output operand \$0 .*@p add\.u32 \$0, \$1, 1;.* at x = 0x00000005", said)
    assert "templates.py" not in said


@pytest.mark.sample(2)
@pytest.mark.parametrize("alone", ["1", "0"])
def test_the_printed_repeat_command_finds_the_undefined_bits_again(run_cases, monkeypatch, alone):
    """The token holds the input of the finding, not the first input of the set."""
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", alone)
    said = run_cases(undefined=UNDEFINED).stdout.str()
    (token,) = set(re.findall(r"repeat .* --ptx-replay=(\S+)", said))  # pytest repeats the message if CI is set
    assert "x=00000005" in token
    run_cases(f"--ptx-replay={token}", undefined=UNDEFINED).assert_outcomes(failed=1)


KERNEL = '''
import triton
import triton.language as tl
from ptxdiff import Case, plain
from ptxdiff.references.formats import U32

@triton.jit
def odd(x):
    asm: tl.constexpr = """{ .reg .pred p;
        setp.ne.u32 p, $1, 5;
        @p add.u32 $0, $1, 1; }"""
    y = tl.inline_asm_elementwise(asm, "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1)
    return y * 2

case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: (x + 1) * 2 & 0xFFFFFFFF, source="a test",
    variants={"v": plain(odd)},
)
'''


def test_undefined_bits_of_asm_in_a_triton_function_point_at_its_line(run_cases):
    said = run_cases("--ptx-replay=pack=1,shape=4,x=00000005", odd=KERNEL).stdout.str()
    assert re.search(r"this instruction leaves them undefined.*odd\.py:12.*add\.u32.*line 3 of the inline asm", said)
    assert "templates.py" not in said


def dumped(said: str) -> tuple[dict[str, np.ndarray], list[str]]:
    lines = re.search(r"  load      (import .*)\n {12}(.*)\n {12}(.*)\n", said)
    assert lines, said
    space: dict[str, object] = {}
    exec(f"{lines[1]}\n{lines[2]}\nshown = {lines[3]}", space)
    with space["d"] as file:  # type: ignore[attr-defined]
        return dict(file), space["shown"]  # type: ignore[return-value]


@pytest.mark.sample(2)
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_failure_can_be_loaded(run_cases, workers):
    said = run_cases("--ptx-dump=kept/here", "-k", "wrong", *workers, flip=FLIP).stdout.str()
    arrays, (got, expected) = dumped(said)
    assert set(arrays) == {"inputs/x", "outputs/y", "expected/y", "mask/y"}
    assert arrays["mask/y"].any()
    assert (got != expected).all()
    np.testing.assert_array_equal(arrays["outputs/y"] != arrays["expected/y"], arrays["mask/y"])
    names = [f.name for f in Path("kept/here").iterdir()]
    assert all(n.startswith("flip-wrong-sm_100a-emulator-pack") and n.endswith(".npz") for n in names)
    failed = int(re.search(r"(\d+) of \d+ results of this item fail", said)[1])  # type: ignore[index]
    assert len(names) == failed, "one for each failing result"


def test_what_is_no_folder_for_dumps_is_one_error(run_cases):
    Path("taken").write_text("")
    result = run_cases("--ptx-dump=taken", flip=FLIP)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --ptx-dump: *taken cannot be a folder (*); give a folder, new or existing"])


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("nonsense", "'nonsense' is no replay token*"),
        ("pack=1,shape=4,z=00", "*the case's inputs are x; the token gives z*"),
    ],
)
def test_a_bad_replay_token_is_one_error(run_cases, token, words):
    result = run_cases(f"--ptx-replay={token}", flip=FLIP)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --ptx-replay: {words}; give the item and the token as *"])
    assert result.stderr.str().count("--ptx-replay") == 1
