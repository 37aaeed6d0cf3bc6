"""What is never a proof: an answer that is not "no", a kept one for another question, a question about nothing."""

from __future__ import annotations

import importlib
import itertools
import json
import random
import sys
from collections.abc import Callable

import pytest

pytest.importorskip("torch")
pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff import Case, asm
from ptxdiff.model.match import Domain, exact
from ptxdiff.proving import definitions, queries, solving
from ptxdiff.proving import terms as t
from ptxdiff.proving.solving import SHORT, ProofSearch, SolverAnswer, SolverFault, Verdict
from ptxdiff.proving.verdicts import prove
from ptxdiff.references.formats import U32

A, B = t.variable("a", 32), t.variable("b", 32)
EQUAL = t.bnot(t.eq(t.add(t.and_(A, B), t.or_(A, B)), t.add(A, B)))
"""A goal that holds for no input, and not by the terms alone."""


def refuted(goal: t.Term = EQUAL, assumptions: tuple[t.Term, ...] = (), seconds: float = 60.0) -> Verdict | None:
    search = ProofSearch(seconds, ())
    return search.refute(goal, assumptions, lambda model, exact: None, lambda asked: "a model")


@pytest.fixture(autouse=True)
def _no_kept_answers(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))


def answered(answer: str) -> Callable[..., SolverAnswer]:
    return lambda query, seconds, solvers=(): SolverAnswer(answer, 0.1, "bitwuzla")


def test_a_goal_that_holds_for_no_input_is_refuted() -> None:
    assert refuted() is None


@pytest.mark.parametrize("answer", ["unknown", "timeout", "", "sat"])
def test_every_answer_but_unsat_leaves_a_goal_open(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "ask", answered(answer))
    found = refuted()
    assert found is not None
    assert found.verdict == "not settled"


def test_an_unknown_is_not_kept_as_a_proof(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(solving, "ask", answered("unknown"))
        assert refuted() is not None
    with monkeypatch.context() as patched:
        patched.setattr(solving, "ask", answered("sat"))
        assert refuted() is not None


def test_a_kept_answer_is_for_the_same_question_and_the_same_version_of_the_solver(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refuted() is None
    monkeypatch.setattr(solving, "ask", answered("unknown"))
    assert refuted() is None  # kept
    assert refuted(t.bnot(t.eq(t.add(t.and_(A, B), t.or_(A, B)), t.sub(A, B)))) is not None
    with monkeypatch.context() as patched:
        patched.setattr(solving, "version", lambda solver: f"{solver} 99")
        assert refuted() is not None


def test_an_assumption_is_part_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    goal, below = t.bnot(t.eq(t.and_(A, t.const(8, 32)), t.const(0, 32))), t.ult(A, t.const(8, 32))
    assert refuted(goal, (below,)) is None
    monkeypatch.setattr(solving, "ask", answered("unknown"))
    assert refuted(goal, (below,)) is None
    assert refuted(goal) is not None
    assert refuted(goal, (t.ult(A, t.const(9, 32)),)) is not None


def test_a_solver_that_dies_leaves_a_goal_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def died(*_: object) -> SolverAnswer:
        raise SolverFault("bitwuzla ended with -11: no words")

    monkeypatch.setattr(solving, "ask", died)
    found = refuted()
    assert found is not None
    assert found.reason == "solver: bitwuzla ended with -11: no words"


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("import time\nwhile True: pass", "unknown"),  # ended by the limit of its processor time
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "unknown"),
        ("import sys\nsys.exit(3)", "fault"),
        ("print('unsat')", "fault"),
        ("", "fault"),
    ],
)
def test_a_process_that_does_not_answer_proves_nothing(
    program: str, answer: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "solver.py"
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\n"
    path.write_text(f"import sys\nsys.stdin.read()\n{limit}{program}\n")
    monkeypatch.setattr(solving, "_PROCESS", path)
    found = refuted(seconds=2)
    assert found is not None
    assert found.verdict == "not settled"
    assert found.reason.startswith("time" if answer == "unknown" else "solver")


def test_a_way_that_takes_long_gets_its_time_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a model of the last way settles nothing while another way may still refute the goal."""
    asked: list[tuple[str, float]] = []

    def slowly(query, seconds, solvers=()):
        asked.append((query.way, seconds))
        answers = {"integers": "unsat" if seconds > SHORT else "unknown", "uninterpreted": "sat"}
        return SolverAnswer(answers[query.way], 0.1, "bitwuzla")

    monkeypatch.setattr(solving, "ask", slowly)
    goal = t.bnot(t.eq(t.udiv(A, t.const(7, 32)), B))
    assert queries.ways([goal]) == ["integers", "uninterpreted"]
    assert refuted(goal) is None
    assert [way for way, _ in asked] == ["integers", "uninterpreted", "integers"]
    assert asked[0][1] == SHORT < asked[2][1]


def test_a_time_that_is_over_asks_nothing() -> None:
    found = refuted(seconds=0.1)
    assert found is not None
    assert found.reason.startswith("time")


def case(text: str = "add.u32 $0, $1, $2;", reference=lambda a, b: (a + b) & 0xFFFFFFFF, **options: object) -> Case:
    return Case(
        inputs={"a": U32, "b": U32}, outputs={"y": U32}, reference=reference,
        variants={"it": asm(text, "=r,r,r", pack=1)}, **options,
    )  # fmt: skip


def test_a_domain_of_no_inputs_proves_nothing() -> None:
    empty = Domain("a is less than a", lambda v: v["a"] < v["a"])
    found = prove(case("sub.u32 $0, $1, $2;", where=empty), "it", "sm_90a")
    assert found.verdict == "not settled"  # whatever is asked, no model lies in the domain


def test_contradictory_constraints_prove_nothing() -> None:
    both = Domain("a is above and below 7", lambda v: (v["a"] < 7) & (v["a"] > 7))
    found = prove(case("sub.u32 $0, $1, $2;", where=both), "it", "sm_90a")
    assert (found.verdict, found.reason.partition(":")[0]) == ("not settled", "nothing to prove")


def test_a_domain_of_one_input_is_enough() -> None:
    one = Domain("a is 5", lambda v: v["a"] == 5)
    text = "{ .reg .b32 t; add.u32 t, $2, 5; mov.b32 $0, t; }"
    assert prove(case(text, where=one), "it", "sm_90a").verdict == "proved"


def test_a_policy_that_checks_no_input_proves_nothing() -> None:
    never = exact(on=Domain("a is above and below 7", lambda v: (v["a"] < 7) & (v["a"] > 7)))
    found = prove(case("sub.u32 $0, $1, $2;", match=never), "it", "sm_90a")
    assert found.verdict == "not settled"


def test_a_changed_definition_reference_policy_or_domain_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a proof depends on can change without another question."""
    swap = "{ .reg .b32 t, s; and.b32 t, $1, $2; or.b32 s, $1, $2; add.u32 t, t, s; mov.b32 $0, t; }"
    assert prove(case(swap), "it", "sm_90a").verdict == "proved"
    monkeypatch.setattr(solving, "ask", answered("unknown"))
    kept = prove(case(swap), "it", "sm_90a")
    assert kept.verdict == "proved"
    other = prove(case(swap, lambda a, b: (a + b + 1) & 0xFFFFFFFF), "it", "sm_90a")
    assert other.verdict == "not settled"
    inside = Domain("a is below b", lambda v: v["a"] < v["b"])
    narrow = prove(case(swap, where=inside), "it", "sm_90a")
    assert narrow.verdict == "not settled"
    right = definitions.INTEGER[__import__("ast").BitAnd]
    monkeypatch.setitem(definitions.INTEGER, __import__("ast").BitAnd, lambda a, b: t.not_(right(a, b)))
    assert prove(case(swap), "it", "sm_90a").verdict == "not settled"


def test_equal_questions_have_equal_texts() -> None:
    """Whatever was built before them in this process."""
    script = "from ptxdiff.proving import queries, terms as t\n{}\na, b = t.variable('a', 32), t.variable('b', 32)\n"
    script += "print(queries.query(t.eq(t.add(t.mul(a, b), b), t.xor(b, a)), [], 'uninterpreted').text)"
    import subprocess

    texts = {
        subprocess.run([sys.executable, "-c", script.format(first)], capture_output=True, text=True, check=True).stdout
        for first in ("", "held = t.variable('b', 32), t.xor(t.variable('b', 32), t.variable('a', 32))")
    }
    assert len(texts) == 1
    assert json.dumps(texts.pop()).count("bvadd") == 1
    assert queries.ways([EQUAL]) == ["uninterpreted"]


# Products and quotients by constants, of a solver that takes words as integers.


BUILD = {
    "and": t.and_, "or": t.or_, "xor": t.xor, "add": t.add, "mul": t.mul, "lshr": t.lshr, "ashr": t.ashr,
    "udiv": t.udiv, "urem": t.urem,
}  # fmt: skip


def small_term(rng: random.Random, depth: int, width: int) -> t.Term:
    if depth == 0:
        constant = t.const(rng.choice([1, 2, 3, 7, t.ones(width), rng.getrandbits(width)]), width)
        return rng.choice([t.variable("a", width), t.variable("b", width), constant])
    kind = rng.choice(["and", "or", "xor", "add", "mul", "lshr", "ashr", "udiv", "urem", "ite", "part", "sext", "neg"])
    one, other = (small_term(rng, depth - 1, width) for _ in range(2))
    if kind == "neg":
        return t.neg(one)
    if kind == "ite":
        return t.ite(rng.choice([t.eq, t.ult, t.slt])(one, other), one, other)
    if kind in ("part", "sext"):
        high = rng.randrange(width)
        part = t.extract(one, high, rng.randrange(high + 1))
        return t.zext(part, width) if kind == "part" else t.sext(part, width)
    if kind in ("lshr", "ashr"):
        other = t.const(rng.randrange(width + 2), width)
    if kind in ("udiv", "urem"):
        other = t.const(rng.choice([3, 5, 7]), width)
    return BUILD[kind](one, other)


def test_the_solver_of_integers_never_refutes_what_holds_for_some_input() -> None:
    """Against all inputs, for random terms; every question in one process."""
    solver_process = importlib.import_module("ptxdiff.proving.solver_process")
    rng, settled = random.Random(7), 0
    for _ in range(120):
        width = rng.choice([3, 4])
        goal = t.ult(small_term(rng, 3, width), small_term(rng, 2, width))
        pairs = itertools.product(range(1 << width), repeat=2)
        ever = any(t.evaluate([goal], {"a": a, "b": b}) == [1] for a, b in pairs)
        asked = queries.query(goal, [], "integers")
        answer, model = solver_process.by_z3(asked.text, dict(asked.variables), integers=True)
        assert answer in ({"sat", "unknown"} if ever else {"unsat", "unknown"}), asked.text
        if answer == "sat":
            assert t.evaluate([goal], {"a": 0, "b": 0} | model) == [1]
        settled += answer != "unknown"
    assert settled > 90


@pytest.mark.parametrize(
    ("constant", "answer"), [(0x2492492492492493, "unsat"), (0x2492492492492492, "sat"), (0x2492492692492493, "sat")]
)
def test_a_quotient_by_a_product_with_a_reciprocal(constant: int, answer: str) -> None:
    wide = t.mul(t.zext(A, 96), t.const(constant, 96))
    goal = t.bnot(t.eq(t.extract(wide, 95, 64), t.udiv(A, t.const(7, 32))))
    assert queries.ways([goal])[:2] == ["products", "integers"]
    found = solving.ask(queries.query(goal, [], "integers"), 60)
    assert (found.answer, found.solver) == (answer, "z3-integers")
    if answer == "sat":
        assert t.evaluate([goal], {"a": 0} | dict(found.model)) == [1]


def test_wide_products_are_sums_of_products_of_words() -> None:
    """The same number as the product, whatever extends the operands; and never more than two words can give."""
    rng = random.Random(3)
    wide = [t.variable("w", 64), t.variable("v", 64)]
    extended = [t.sext(A, 64), t.zext(B, 64), t.sext(B, 64), t.const(0x9E3779B97F4A7C15, 64), *wide]
    for one, other in itertools.product(extended, repeat=2):
        product = t.mul(one, other)
        (found,) = queries.with_products([product])
        for _ in range(20):
            numbers = {
                n: rng.choice([0, t.ones(w), rng.getrandbits(w)]) for n, w in zip("abwv", (32, 32, 64, 64), strict=True)
            }
            assert t.evaluate([found], numbers) == t.evaluate([product], numbers)
    product = t.mul(t.zext(A, 64), t.zext(B, 64))
    total = t.add(t.add(product, t.zext(A, 64)), t.zext(B, 64))
    assert refuted(t.ult(total, product)) is None  # so much fits beside a product
    assert refuted(t.ult(t.add(total, t.const(1, 64)), product)) is not None
