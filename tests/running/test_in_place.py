"""Tensors updated in place: wrong kernels fail, and a case in which a kernel without a store passes is an error."""

import json
import re

import numpy as np
import pytest

from ptxdiff.judging.judged_share import unwritten_error

HEAD = '''"""Kernels in place."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, kernel, ptx
from ptxdiff.references.formats import F32, I32

ONE = {"sizes": [{"n": 40}], "inputs": {"x": I32["n"], "d": I32["n"]}, "outputs": {"x": I32["n"]}}


@triton.jit
def add(x, d, n, FIRST: tl.constexpr, COUNT: tl.constexpr, MOVED: tl.constexpr, TIMES: tl.constexpr, TO: tl.constexpr):
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    m = (i >= FIRST) & (i < COUNT)
    for _ in range(TIMES):
        sum = tl.load(x + i, mask=m) + tl.load(d + i, mask=m)
        tl.store(x + i + MOVED, sum, mask=m)
        if TO:
            tl.store(d + i, sum, mask=m)


@triton.jit
def nothing(x, d, n):
    pass


@triton.jit
def neighbours(x, d, n):
    """Each program reads what the next one may have written already: right where programs run in order."""
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    following = tl.load(x + i + 1, mask=i + 1 < n, other=0)
    tl.debug_barrier()
    tl.store(x + i, tl.load(x + i, mask=i < n) + following, mask=i < n)


def launched(first=0, count=40, moved=0, times=1, to=False):
    meta = {"FIRST": first, "COUNT": count, "MOVED": moved, "TIMES": times, "TO": to}
    return kernel(add, grid="ceil(n/16)", meta=meta)


def total(x, d):
    return (x + d) & 0xFFFFFFFF
'''

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add_in_place(.param .u64 px, .param .u64 pd, .param .u32 pn)
{
  .reg .pred p; .reg .b32 a, b, i, n; .reg .b64 x, d, o;
  ld.param.u64 x, [px]; ld.param.u64 d, [pd]; ld.param.u32 n, [pn];
  cvta.to.global.u64 x, x; cvta.to.global.u64 d, d;
  mov.u32 i, %tid.x; setp.ge.u32 p, i, n; @p bra done;
  mul.wide.u32 o, i, 4; add.s64 x, x, o; add.s64 d, d, o;
  ld.global.b32 a, [x]; ld.global.b32 b, [d]; add.s32 a, a, b; st.global.b32 [x], a;
done: ret;
}
"""

SUMS = f'''
PTX = """{PTX}"""

case = Case(
    **ONE,
    reference=total,
    variants={{
        "right": launched(),
        "ptx": ptx(PTX, grid=1, block=64, parameters=["x", "d", "n"]),
        "nothing": kernel(nothing, grid="ceil(n/16)"),
        "no programs": kernel(nothing, grid="n - n"),
        "not the first": launched(first=1),
        "not the tail": launched(count=39),
        "moved": launched(moved=1, count=39),
        "beyond": launched(count=48),
        "twice": launched(times=2),
        "into the input": launched(to=True),
    }},
)
'''


def results(pytester):
    lines = (pytester.path / "r.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if r["record"] == "result"]


def verdicts(found):
    worst = {}
    for r in found:
        worst.setdefault(r["key"]["variant"], set()).add(r["verdict"])
    return worst


def test_right_kernels_pass_and_all_others_fail(run_cases, pytester):
    run_cases("--ptx-records=r.jsonl", "--ptx-dump=dump", sums=HEAD + SUMS)
    found = results(pytester)
    worst = verdicts(found)
    assert {n for n, v in worst.items() if v == {"pass"}} == {"right", "ptx"}
    assert all(v <= {"pass", "fail"} and "fail" in v for n, v in worst.items() if n not in ("right", "ptx")), worst
    words = {r["key"]["variant"]: r["message"] for r in found if r["verdict"] == "fail"}
    assert re.search(r"(\d+) of \1 wrong codes of x are what the input has: never written\?", words["nothing"])
    assert "never written" not in words["twice"]
    first = {(r["key"]["variant"], r["message"].partition("\n")[0]) for r in found if r["verdict"] == "fail"}
    missing = "all wrong codes of x are what the tensor had before: is a store missing?"
    assert {variant for variant, line in first if missing in line} == {"nothing", "no programs"}
    assert "d is an input and" in words["into the input"]
    assert "out of bounds: 4 bytes at offset 160 of x" in words["beyond"]
    dumped = next((pytester.path / "dump").glob("*nothing*random*.npz"))
    with np.load(dumped) as file:
        arrays = dict(file)
    given, delta = arrays["inputs/x"].view(np.uint32), arrays["inputs/d"].view(np.uint32)
    np.testing.assert_array_equal(arrays["outputs/x"].view(np.uint32), given)
    np.testing.assert_array_equal(arrays["expected/x"].view(np.uint32), given + delta)
    np.testing.assert_array_equal(arrays["mask/x"], delta != 0)


UNCHANGED = """
@triton.jit
def flip(x, n, EVERY: tl.constexpr, BELOW: tl.constexpr):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(x + i, tl.load(x + i, mask=i < n) ^ 1, mask=(i < n) & (i % EVERY == 0) & (n < BELOW))


def of(reference, sizes, fmt, **variants):
    variants["nothing"] = kernel(nothing, grid=1)
    return Case(inputs={"x": fmt["n"]}, outputs={"x": fmt["n"]}, reference=reference, sizes=sizes, variants=variants)


def flips(every, below):
    \"\"\"The kernel, and what it gives.\"\"\"
    right = kernel(flip, grid="ceil(n/64)", meta={"EVERY": every, "BELOW": below})
    return right, lambda x: torch.where((torch.arange(len(x)) % every == 0) & (len(x) < below), x ^ 1, x)


def sparse(every, below, *sizes):
    right, reference = flips(every, below)
    return of(reference, [{"n": n} for n in sizes], I32, right=right)


same = of(lambda x: x, [{"n": 1500}], F32)
quiet_nan = of(lambda x: torch.where((x & 0x7FFFFFFF) > 0x7F800000, 0x7FFFFFFF, x), [{"n": 1500}], F32)
one_in_two_thousand = sparse(2000, 10000, 6000)
small_sizes_alone = sparse(1, 1000, 999, 1500)
enough = sparse(900, 10000, 1, 2, 1500)
"""


def test_a_kernel_that_may_leave_its_tensor_unwritten_does_not_pass(run_cases, pytester):
    """An unwritten tensor holds the input's bits, so only a reference that changes them reveals the missing store."""
    source = HEAD.replace("def nothing(x, d, n)", "def nothing(x, n)") + UNCHANGED
    run_cases("--ptx-records=r.jsonl", unchanged=source)
    found = results(pytester)
    worst = {}
    for r in found:
        worst.setdefault((r["key"]["case"].partition(".")[2], r["key"]["variant"]), set()).add(r["verdict"])
    judged = {
        "same": {"nothing": "error"}, "quiet_nan": {"nothing": "error"},
        "one_in_two_thousand": {"nothing": "fail", "right": "error"},
        "small_sizes_alone": {"nothing": "fail", "right": "error"}, "enough": {"nothing": "fail", "right": "pass"},
    }  # fmt: skip
    assert {(c, n): v for c, vs in judged.items() for n, v in vs.items()} == {
        key: next(w for w in ("fail", "error", "pass") if w in verdicts) for key, verdicts in worst.items()
    }
    words = {r["key"]["case"].partition(".")[2]: r["words"] for r in found if r["verdict"] == "error"}
    start = "x is updated in place, and"
    assert words["one_in_two_thousand"].startswith(f"{start} 6 of 12,000 codes at n=6000 would be wrong if nothing")
    assert words["small_sizes_alone"].startswith(f"{start} 0 of 7,500 codes at n=1500 would be wrong if nothing")


def test_small_shapes_count_together():
    """One element that stays the same by chance proves no fault of the case; a large shape that stays the same does."""
    small = {"n=1": [{"x": (1, 0)}, {"x": (1, 0)}], "n=2": [{"x": (2, 1)}]}
    assert not unwritten_error(small)
    assert "0 of 2 codes would" in unwritten_error({"n=1": small["n=1"]})
    assert "0 of 1,000 codes at n=1000" in unwritten_error({**small, "n=1000": [{"x": (1000, 0)}]})
    assert unwritten_error({"n=1000": [{"x": (1000, 1), "y": (1000, 0)}]}).startswith("y is updated")
    assert not unwritten_error({"n=0": [{"x": (0, 0)}], "none": [{}]})


ORDER = """
case = Case(
    inputs={"x": I32["n"], "d": I32["n"]}, outputs={"x": I32["n"]}, sizes=[{"n": 40}],
    reference=lambda x, d: (x + torch.cat([x[1:], x[:1] * 0])) & 0xFFFFFFFF,
    variants={"neighbours": kernel(neighbours, grid="ceil(n/16)")},
)
"""


def test_bits_that_are_right_only_in_one_order_of_programs_are_a_race(run_cases, pytester):
    """The emulator runs programs in order, so that each reads its neighbour's input before that is overwritten."""
    run_cases("--ptx-records=r.jsonl", order=HEAD + ORDER)
    found = results(pytester)
    assert verdicts(found) == {"neighbours": {"fail"}}
    assert all("race: " in r["words"] and "order.py" in r["words"] for r in found)
    assert not any("inline asm" in r["words"] for r in found)  # Triton writes its loads and stores as inline asm


def test_a_failure_is_repeated_by_its_token(run_cases, pytester):
    run_cases("-k", "nothing", "--ptx-records=r.jsonl", sums=HEAD + SUMS)
    token = results(pytester)[0]["replay"]
    again = run_cases("cases/sums.py::nothing[sm_100a-emulator]", f"--ptx-replay={token}", sums=HEAD + SUMS)
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*codes differ*"])


@pytest.mark.slow
def test_the_assembler_accepts_it(run_cases):
    run_cases("-k", "right or ptx", "--ptx-backend=assembler", sums=HEAD + SUMS).assert_outcomes(passed=2)


NORM = """
@triton.jit
def norm(x, r, n, LEAK: tl.constexpr):
    i = tl.arange(0, 64)
    sum = tl.load(x + i, mask=i < n, other=0) + tl.load(r + i, mask=i < n, other=0)
    scale = tl.rsqrt(tl.sum(sum * sum, axis=0))
    tl.store(r + i, tl.where(scale == 12345.0, scale, sum) if LEAK else sum, mask=i < n)
    tl.store(x + i, sum * scale, mask=i < n)


case = Case(
    inputs={"x": F32["n"], "r": F32["n"]}, outputs={"x": F32["n"], "r": F32["n"]}, sizes=[{"n": 40}],
    reference=lambda x, r: (x, arithmetic.add(x, r)), match={"x": ulp(1)},
    variants={n: kernel(norm, grid=1, meta={"LEAK": n == "leaks"}, fusion=False) for n in ("apart", "leaks")},
)
"""


def test_an_exact_sum_beside_an_approximate_norm_is_judged_exactly(run_cases, pytester):
    """The reference of x is wrong here. The reference of r is right, and only the variant that leaks may not be exact
    there."""
    head = HEAD.replace("import Case, kernel, ptx", "import Case, kernel, ptx, ulp")
    run_cases(
        "--ptx-records=r.jsonl",
        norm=head.replace(
            "from ptxdiff.references.f", "from ptxdiff.references import arithmetic\nfrom ptxdiff.references.f"
        )
        + NORM,
    )
    for r in results(pytester):
        found = [
            f for f in r.get("findings", ()) if f.startswith("approximate, and the policy is exact: r may depend on")
        ]
        assert bool(found) == (r["key"]["variant"] == "leaks")
        assert "output r" not in r["message"]


GATHER = """
@triton.jit
def put(x, at, v, n, READ: tl.constexpr):
    i = tl.arange(0, 8)
    place = tl.load(at + i) if READ else i
    tl.store(x + place, tl.load(v + i))


def placed(x, at, v):
    return x.scatter(0, at, v)


def made(sizes, rng):
    return {"x": rng.integers(0, 9, 16, np.int32), "at": rng.permutation(16)[:8], "v": rng.integers(0, 9, 8, np.int32)}


def of(**more):
    return Case(
        inputs={"x": I32["n"], "at": I64[8], "v": I32[8]}, outputs={"x": I32["n"]}, sizes=[{"n": 16}], generate=made,
        reference=placed, variants={"reads": kernel(put, grid=1, num_warps=1, meta={"READ": True}),
                                    "counts": kernel(put, grid=1, num_warps=1, meta={"READ": False})}, **more)


free = of()
bound = of(where={"at": generated})
"""


@pytest.mark.slow
def test_an_index_out_of_range_gets_a_hint_to_use_where(run_cases, pytester):
    """Edges and random bits have no range, so that a kernel accesses memory outside its tensor, or its reference
    raises."""
    head = HEAD.replace("import Case, kernel, ptx", "import Case, generated, kernel, ptx").replace(
        "F32, I32", "F32, I32, I64"
    )
    run_cases("--ptx-records=r.jsonl", gather=head.replace("import torch", "import numpy as np\nimport torch") + GATHER)
    found = results(pytester)
    said: dict[tuple[str, str], list[str]] = {}
    for r in found:
        said.setdefault((r["key"]["case"].partition(".")[2], r["key"]["variant"]), []).append(r.get("message", ""))
    hint = (
        'if an input is that index: edges/1 gives at, v any bits; state the range of an index with where={"at": Domain('
    )
    assert any(hint in text and "out of bounds" in text for text in said["free", "reads"])
    assert any(hint in text and "error: reference placed raised" in text for text in said["free", "counts"])
    assert not any(said["bound", "reads"])  # this variant passes
    assert any(said["bound", "counts"])
    assert not any("any bits" in text for text in said["bound", "counts"])
    assert not any("generated/1 gives" in text for texts in said.values() for text in texts)
