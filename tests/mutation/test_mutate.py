"""Planted mistakes: which are killed, which survive, and which inputs would have detected the survivors."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.cli import main
from ptxdiff.model.load import load
from ptxdiff.mutation import asm, source
from ptxdiff.mutation.asm import instructions
from ptxdiff.mutation.campaign import Budget, mutate, target_of
from ptxdiff.mutation.settle import Search
from ptxdiff.records import read
from ptxdiff.records.kill_rate import kill_rate

SEARCH = Search(bits=16, count=1 << 20, seconds=120.0)
SHORT = Search(16, 1 << 16, 1.0)

# After a shift, an xor and a multiplication one number in 2^18 gets a special result: no input set has such a number.
WEAK = '''
"""A word that, mixed and multiplied with 0x9E3779B1, ends in 0x1A5A5 gives 1, every other one 0."""

import torch

from ptxdiff import Case, asm
from ptxdiff.references.formats import U32


def special(x):
    """1 for the one pattern."""
    return torch.where(((x ^ x >> 13) * 0x9E3779B1 & 0x3FFFF) == 0x1A5A5, 1, 0)


case = Case(
    inputs={"x": U32},
    outputs={"y": U32},
    reference=special,
    %svariants={
        "asm": asm(
            "{ .reg .b32 t; .reg .pred p; shr.u32 t, $1, 13; xor.b32 t, t, $1;"
            "mul.lo.u32 t, t, 0x9E3779B1; and.b32 t, t, 0x3FFFF;"
            "setp.eq.u32 p, t, 0x1A5A5; selp.b32 $0, 1, 0, p; }",
            constraints="=&r,r",
            pack=1,
        ),
        "wrong": asm("not.b32 $0, $1;"),
    },
    source="made for this test",
)
'''


def weak_in(folder: Path) -> Path:
    (folder / "cases").mkdir()
    path = folder / "cases" / "weak.py"
    path.write_text(WEAK % "")
    return path


@pytest.fixture
def weak(tmp_path: Path) -> Path:
    return weak_in(tmp_path)


@dataclass
class Commanded:
    """A run of the command on the mutants of the weak case's asm: what it returned and printed, and its records."""

    code: int
    said: str
    records: Path
    case: Path


@pytest.fixture(scope="module")
def commanded(tmp_path_factory: pytest.TempPathFactory) -> Commanded:
    folder = tmp_path_factory.mktemp("weak")
    case, records = weak_in(folder), folder / "mutations.jsonl"
    with contextlib.redirect_stdout(io.StringIO()) as said:
        words = ["mutate", str(case), "--variant", "asm", "--only", "asm", "--spread", "20", "--records", str(records)]
        code = main(words)
    return Commanded(code, said.getvalue(), records, case)


def texts(text: str, constraints: str = "=r,r,r", outputs: int = 1) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for m in asm.mutants(text, constraints, outputs):
        found.setdefault(m.operator, []).append(m.text if m.text != text else m.constraints)
    return found


@pytest.mark.parametrize(
    ("operator", "text", "mutant"),
    [
        ("rounding", "add.rn.f32 $0, $1, $2;", "add.rz.f32 $0, $1, $2;"),
        ("rounding dropped", "add.rz.f32 $0, $1, $2;", "add.f32 $0, $1, $2;"),
        ("rounding added", "mul.f32x2 $0, $1, $2;", "mul.rz.f32x2 $0, $1, $2;"),
        ("rounding added", "add.ftz.f32 $0, $1, $2;", "add.rz.ftz.f32 $0, $1, $2;"),
        ("ftz added", "add.rn.f32 $0, $1, $2;", "add.rn.ftz.f32 $0, $1, $2;"),
        ("ftz dropped", "add.ftz.f32 $0, $1, $2;", "add.f32 $0, $1, $2;"),
        ("sat added", "add.f32 $0, $1, $2;", "add.sat.f32 $0, $1, $2;"),
        ("sat dropped", "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", "cvt.rn.e4m3x2.f32 $0, $1, $2;"),
        ("relu added", "cvt.rn.f16.f32 $0, $1;", "cvt.rn.relu.f16.f32 $0, $1;"),
        ("NaN added", "min.f32 $0, $1, $2;", "min.NaN.f32 $0, $1, $2;"),
        ("signedness", "shr.u32 $0, $1, $2;", "shr.s32 $0, $1, $2;"),
        ("width", "mul.lo.u32 $0, $1, $2;", "mul.lo.u16 $0, $1, $2;"),
        ("half", "mul.hi.u32 $0, $1, $2;", "mul.lo.u32 $0, $1, $2;"),
        ("format", "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", "cvt.rn.satfinite.e5m2x2.f32 $0, $1, $2;"),
        ("comparison", "setp.lt.f32 p, $1, $2;", "setp.le.f32 p, $1, $2;"),
        ("unordered", "setp.lt.f32 p, $1, $2;", "setp.ltu.f32 p, $1, $2;"),
        ("opcode", "min.s32 $0, $1, $2;", "max.s32 $0, $1, $2;"),
        ("operands swapped", "sub.s32 $0, $1, $2;", "sub.s32 $0, $2, $1;"),
        ("register replaced", "sub.s32 $0, $1, $2;", "sub.s32 $0, $2, $2;"),
        ("constant off by one", "add.s32 $0, $1, 0x10;", "add.s32 $0, $1, 0x11;"),
        ("constant off by one", "add.s32 $0, $1, -1;", "add.s32 $0, $1, -2;"),
        ("constant off by one", "mul.f32 $0, $1, 0f3F800000;", "mul.f32 $0, $1, 0f3F7FFFFF;"),
        ("shift amount", "shl.b32 $0, $1, 4;", "shl.b32 $0, $1, 5;"),
        ("byte selector", "prmt.b32 $0, $1, $2, 0x3210;", "prmt.b32 $0, $1, $2, 0x3201;"),
        ("lop3 table", "lop3.b32 $0, $1, $2, 0, 0xC0;", "lop3.b32 $0, $1, $2, 0, 0x40;"),
        ("guard negated", "@!p mov.b32 $0, $1;", "@p mov.b32 $0, $1;"),
        ("guard dropped", "@p mov.b32 $0, $1;", " mov.b32 $0, $1;"),
        ("predicate negated", "selp.b32 $0, $1, $2, p;", "selp.b32 $0, $1, $2, !p;"),
        ("instruction dropped", "not.b32 $0, $1; not.b32 $0, $0;", "not.b32 $0, $1; "),
        ("vector order", "mov.b32 $0, {lo, hi};", "mov.b32 $0, {hi, lo};"),
        ("arguments exchanged", "add.s32 $0, $1, $2;", "add.s32 $0, $2, $1;"),
        ("shift mode", "shf.l.wrap.b32 $0, $1, $2, 3;", "shf.l.clamp.b32 $0, $1, $2, 3;"),
    ],
)
def test_each_operator_changes_what_it_is_named_for(operator, text, mutant):
    assert mutant in texts(text)[operator]


@pytest.mark.parametrize("text", ["mul.rn.f32 $0, $1, $2;", "mul.lo.u32 $0, $1, $2;", "min.f32 $0, $1, $2;"])
def test_a_rounding_is_added_only_where_one_is_implied(text):
    assert "rounding added" not in texts(text)


def test_there_are_more_than_twenty_operators():
    assert len(set(asm.NAMES)) == len(asm.NAMES) >= 20


def test_outputs_are_exchanged_and_early_clobbers_dropped():
    found = texts("mov.b32 $0, $2; mov.b32 $1, $3;", "=&r,=r,r,r", outputs=2)
    assert found["outputs exchanged"] == ["mov.b32 $1, $2; mov.b32 $0, $3;"]
    assert found["early clobber dropped"] == ["=r,=r,r,r"]


def test_words_are_found_in_their_places_with_escapes_braces_and_comments():
    text = "{ .reg .b32 t; // and.b32 here is none\n @!p mov.b32 t, ${1}; add.u32 $0, {t, $2}, $$4; }"
    found, types = instructions(text)
    assert [w.whole.text for w in found] == ["@!p mov.b32 t, ${1};", "add.u32 $0, {t, $2}, $$4;"]
    assert [w.text for w in found[0].operands] == ["t", "${1}"]
    assert [w.text for w in found[1].operands][:2] == ["$0", "{t, $2}"]
    assert getattr(found[0].guard, "text", "") == "@!p"
    assert types == {"t": "b32"}


def test_the_edge_offered_for_a_missed_mutant_kills_it(commanded, tmp_path):
    (found,) = read(commanded.records).mutations
    missed = [s for s in found.survivors if s.fate == "missed" and "0x1a5a6" in s.change]
    assert missed, "the planted weakness was not found"
    edge = int(missed[0].edge["x"], 16)
    assert (edge ^ edge >> 13) * 0x9E3779B1 & 0x3FFFF in (0x1A5A5, 0x1A5A6)
    strong = tmp_path / "strong.py"
    strong.write_text(WEAK % f"hard_cases=[({edge:#x},)],\n    ")
    (loaded,) = load(strong)
    changed, mutants = missed[0].change, asm.mutants
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asm, "mutants", lambda *given: [m for m in mutants(*given) if m.change == changed])
        found, *_ = mutate(loaded, ["asm"], "sm_90a", Budget(search=SHORT), ["asm"])
    assert (found.count("killed"), found.survivors) == (1, ())


def test_the_reference_is_mutated_and_then_restored(weak):
    (loaded,) = load(weak)
    before = loaded.case.reference.__code__
    (found,) = mutate(loaded, ["asm"], "sm_90a", Budget(search=SEARCH), ["reference"])
    assert loaded.case.reference.__code__ is before
    assert found.count("killed") >= 3  # mistakes in the mask and in the results show on ordinary inputs
    assert [s for s in found.survivors if s.fate == "missed" and s.edge]


def test_a_variant_that_fails_unchanged_is_refused(weak):
    (loaded,) = load(weak)
    asm_of, reference = mutate(loaded, ["wrong"], "sm_90a", Budget())
    assert "does not pass unchanged" in asm_of.words
    assert asm_of.count("killed") == 0
    assert reference.words


def test_a_fault_of_the_harness_kills_nothing(weak, monkeypatch):
    (loaded,) = load(weak)
    plain = EmulatorBackend.run

    def faulty(self, job):
        if "0x1A5A5" not in job.variant.texts[1].text:
            raise MemoryError("planted")
        return plain(self, job)

    monkeypatch.setattr(EmulatorBackend, "run", faulty)
    found, *_ = mutate(loaded, ["asm"], "sm_90a", Budget(most=5, search=SHORT), ["asm"])
    crashed = [s for s in found.survivors if "MemoryError" in s.words]
    assert crashed
    assert {s.fate for s in crashed} == {"undecided"}


def test_refused_mutants_are_counted_separately(commanded):
    (loaded,) = load(commanded.case)
    (found,) = read(commanded.records).mutations
    every = sum(1 for _ in asm.mutants(loaded.case.variants["asm"].texts[1].text, "=&r,r", 1))
    assert found.refused > 0  # for example and.b16 of a 32-bit register
    assert found.count("killed") + found.refused + len(found.survivors) == every


@pytest.mark.slow
def test_mutants_left_out_are_counted(weak):
    (loaded,) = load(weak)
    found, *_ = mutate(loaded, ["asm"], "sm_90a", Budget(most=5, search=SHORT), ["asm"])
    assert found.count("killed") + found.refused + len(found.survivors) == 5
    assert found.left_out > 5


def test_the_command_prints_the_edge_and_writes_records_that_the_page_shows(commanded, tmp_path):
    assert commanded.code == 1
    assert "hard_cases=[(0x" in commanded.said
    assert "wrong mutants killed" in commanded.said
    (kept,) = read(commanded.records).mutations
    assert kept.count("missed") >= 1
    page = tmp_path / "page.html"
    assert main(["report", str(commanded.records), "--output", str(page)]) == 0
    assert "Planted mistakes" in page.read_text()
    assert kill_rate([kept]) in page.read_text()


def test_json_is_one_object_a_line(weak, capsys):
    main(["mutate", str(weak), "--variant", "wrong", "--format", "json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["subject"] for line in lines] == ["asm", "reference"]
    assert all(line["record"] == "mutation" for line in lines)


@pytest.mark.slow
def test_many_mutants_of_a_reference_are_announced_with_the_ways_to_have_fewer(weak, capsys, monkeypatch):
    words = ["mutate", str(weak), "--variant", "asm", "--only", "reference", "--inputs", "4", "--bits", "4"]
    words += ["--seconds", "1"]
    main([*words, "--most", "1"])
    assert "mutants, its own" not in capsys.readouterr().err
    monkeypatch.setattr("ptxdiff.cli.mutate.MANY", 1)
    main([*words, "--most", "1"])
    told = capsys.readouterr().err
    assert "weak, reference of asm: 1 mutants, its own and those of functions that it calls" in told
    assert "--only asm leaves them out, --most N takes a sample, --journal FILE keeps what is finished" in told


def test_ctrl_c_ends_the_command_with_a_line_and_no_traceback(weak, capsys, monkeypatch):
    def stopped(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("ptxdiff.mutation.campaign.mutate", stopped)
    assert main(["mutate", str(weak)]) == 130
    assert capsys.readouterr().err == "ptxdiff mutate: stopped\n"


def test_an_unknown_variant_is_a_usage_error(weak, capsys):
    assert main(["mutate", str(weak), "--variant", "nothing"]) == 2
    assert "the cases have asm, wrong" in capsys.readouterr().err


def test_the_target_is_one_that_the_variants_work_on(weak):
    (loaded,) = load(weak)
    assert target_of(loaded, ["asm"]) == "sm_90a"


def test_source_mutants_do_not_change_the_judges_functions():
    from ptxdiff.references import conversion

    names = {f.__module__ for f in source.functions(conversion.convert)}
    assert "ptxdiff.references.conversion" in names
    assert not names & {"ptxdiff.references.formats", "ptxdiff.references.codes"}


def test_mutants_of_references_have_the_same_order_in_every_process():
    code = (
        "from ptxdiff.references import conversion\nfrom ptxdiff.mutation import source\n"
        "print([f.__qualname__ for f in source.functions(conversion.convert)])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    orders = {
        subprocess.run(
            [sys.executable, "-c", code], env={**environment, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(orders) == 1


def test_only_mutants_of_the_lines_that_run_are_made():
    def reference(x):
        y = x + 1
        return y - 1

    every = list(source.mutants(reference))
    line = reference.__code__.co_firstlineno + 1
    some = list(source.mutants(reference, {(reference.__code__, line)}))
    assert some
    assert [m.change for m in some] == [m.change for m in every if line in m.lines]
    assert all(line in m.lines for m in some)
    assert len(some) < len(every)
    assert reference(4) == 4
    with source.swapped(some[0]):
        assert reference(4) != 4


def test_a_reference_that_is_a_lambda_within_a_call_is_mutated(tmp_path):
    """Two lambdas on one line are distinguished, and one lambda spans several lines."""
    path = tmp_path / "lambdas.py"
    path.write_text("both = dict(one=lambda x: x + 1, two=lambda x: x * 3)\nlong = [\n    lambda x:\n    x - 7,\n]\n")
    names: dict[str, object] = {"__name__": "lambdas"}
    exec(compile(path.read_text(), path, "exec"), names)
    found = [names["both"]["one"], names["both"]["two"], names["long"][0]]
    changes = [[m.change.partition(": ")[2] for m in source.mutants(f)] for f in found]
    assert ["x + 1 -> x - 1" in c for c in changes] == [True, False, False]
    assert ["x * 3 -> x + 3" in c for c in changes] == [False, True, False]
    assert ["x - 7 -> x + 7" in c for c in changes] == [False, False, True]


NAMESAKE = '''
"""The case has the name of what its Triton function calls, so a digest of that function covers the reference too."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, plain
from ptxdiff.references.formats import U16


@triton.jit
def in_triton(x):
    return tl.minimum(x, 300)


def least(x):
    """300 at most."""
    return torch.where(x > 300, 300, x)


minimum = Case(
    inputs={"x": U16}, outputs={"y": U16}, reference=least, variants={"triton": plain(in_triton)},
    source="made for this test",
)
'''


@pytest.mark.slow
def test_a_changed_reference_does_not_change_the_triton_function_that_names_the_case(tmp_path):
    (tmp_path / "cases").mkdir()
    path = tmp_path / "cases" / "namesake.py"
    path.write_text(NAMESAKE)
    (loaded,) = load(path)
    (found,) = mutate(loaded, ["triton"], "sm_90a", Budget(search=SEARCH), ["reference"])
    assert found.count("killed") > 3
    assert not found.count("undecided"), found.survivors


QUANTISED = '''
"""A quotient rounded to 8 bits, under two policies."""

from ptxdiff import Case, Domain, absolute, approximate, asm, exact, ulp
from ptxdiff.references import arithmetic, conversion
from ptxdiff.references.formats import F32, I8


def to_int8(q):
    """To nearest even."""
    return conversion.convert(q, source=F32, target=I8)


def quantized(x, scale):
    """The correctly rounded quotient, to nearest even."""
    return to_int8(arithmetic.div(x, scale))


def of(match):
    """The same asm under a policy."""
    return asm("{ .reg .f32 q; div.full.f32 q, $1, $2; cvt.rni.sat.s8.f32 $0, q; }", "=&r,r,r", match=match)


case = Case(
    inputs={"x": F32, "scale": F32},
    outputs={"q": I8},
    reference=quantized,
    variants={
        "within one": of(absolute(1)),
        "through": of(exact(through=approximate(arithmetic.div, F32, ulp(2), then=to_int8))),
    },
    where=Domain("small", lambda v: (v["scale"] >= 2.0**-10) & (v["scale"] <= 2.0**10) & (abs(v["x"]) < 2.0**20)),
    source="made for this test",
)
'''


@pytest.mark.slow
def test_a_wrong_rounding_that_a_bound_allows_is_named_and_dies_where_the_rest_is_exact(tmp_path, monkeypatch, capsys):
    path = tmp_path / "cases" / "quantised.py"
    path.parent.mkdir()
    path.write_text(QUANTISED)
    mutants = asm.mutants
    roundings = [".rzi", ".rpi"]
    monkeypatch.setattr(
        asm, "mutants", lambda *given: [m for m in mutants(*given) if any(r in m.text for r in roundings)]
    )
    words = ["mutate", str(path), "--only", "asm", "--inputs", "12"]
    assert main([*words, "--variant", "within one"]) == 0
    said = capsys.readouterr().out
    assert "0 of 2 wrong mutants killed (0.00%), 2 of 2 pass within the policy" in said
    assert "2 of 2 wrong mutants pass within the policy: cvt.rni.sat.s8.f32 $0, q; -> cvt.r" in said
    assert said.count("  passes within the policy: rounding: cvt.rni") == 2
    assert "100" not in said
    assert main([*words, "--variant", "through"]) == 0
    assert "2 of 2 wrong mutants killed (100.00%)" in capsys.readouterr().out
