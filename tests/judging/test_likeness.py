"""A cause is named for exactly the bits of a mistake, and not for bits that are almost those."""

import numpy as np
import pytest
import triton
import triton.language as tl

from ptxdiff import Case, asm, kernel, ulp
from ptxdiff.judging.judge import Judgement, judge
from ptxdiff.model.policies import policies
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32, U32

FLOATS = np.random.default_rng(3).normal(size=400).astype(np.float32).view(np.uint32)
OTHERS = np.random.default_rng(4).normal(size=400).astype(np.float32).view(np.uint32)
SMALL = np.arange(1, 401, dtype=np.uint32) * 9001
EXCHANGED = "the bits are those of a and b exchanged: swap the operands"


def of_two(got, ftz="never", b=OTHERS, a=FLOATS):
    case = Case(
        inputs={"a": F32, "b": F32}, outputs={"d": F32}, reference=arithmetic.sub, ftz=ftz,
        variants={"v": asm("sub.f32 $0, $1, $2;")},
    )  # fmt: skip
    return judge(case, policies(case, case.variants["v"]), {"a": a, "b": b}, {"d": got})


def less(x, y):
    return (x.view(np.float32) - y.view(np.float32)).view(np.uint32)


def test_exchanged_inputs_are_named():
    assert of_two(less(OTHERS, FLOATS)).cause == EXCHANGED


@pytest.mark.parametrize(
    ("special", "word"),
    [(0x7FC00000, "NaN"), (0x7F800000, "infinite"), (0x80000000, "zero"), (0x80000007, "subnormal")],
)
def test_what_an_input_is_wherever_a_code_is_wrong_is_said(special, word):
    a = np.concatenate([FLOATS, np.full(20, special, np.uint32)])
    case = Case(inputs={"a": F32}, outputs={"d": F32}, reference=lambda a: a, nan="payload",
                variants={"v": asm("mov.b32 $0, $1;")})  # fmt: skip
    policy = policies(case, case.variants["v"])
    found = judge(case, policy, {"a": a}, {"d": np.where(a == special, 0x3F800000, a).astype(np.uint32)})
    assert found.where == f"wrong only where a is {word}"
    assert judge(case, policy, {"a": a}, {"d": a ^ 1}).where == ""


def test_one_code_that_is_not_of_the_exchange_and_nothing_is_named():
    got = less(OTHERS, FLOATS)
    got[7] ^= 1
    assert of_two(got).cause == ""


def test_a_few_wrong_codes_name_no_cause():
    assert of_two(less(OTHERS[:10], FLOATS[:10]), a=FLOATS[:10], b=OTHERS[:10]).cause == ""


def test_right_bits_have_no_cause():
    assert of_two(less(FLOATS, OTHERS)).cause == ""


@pytest.mark.parametrize(
    ("ftz", "flushes", "words"), [("never", True, "without .ftz"), ("required", False, "not flushed")]
)
def test_flushes_are_named_by_what_the_policy_says(ftz, flushes, words):
    zero = np.zeros_like(SMALL)
    found = of_two(zero if flushes else SMALL, ftz=ftz, a=SMALL, b=zero)
    assert words in found.cause
    wrong = zero.copy() if flushes else SMALL.copy()
    wrong[3] = 0x40000000
    assert of_two(wrong, ftz=ftz, a=SMALL, b=zero).cause == ""


def test_zeros_beside_subnormal_numbers_are_no_flush():
    """As of an approximate instruction whose result is one unit off, next to zero."""
    zero = np.zeros_like(SMALL)
    some = np.where(np.arange(400) < 40, zero, SMALL)
    assert of_two(some, a=SMALL, b=zero).cause == ""
    assert of_two(zero, a=SMALL, b=zero).cause


@pytest.mark.parametrize(("farthest", "named"), [(2, True), (3, False)])
def test_zeros_for_numbers_within_the_bound_name_the_option_for_underflow(farthest, named):
    case = Case(
        inputs={"a": F32}, outputs={"d": F32}, reference=lambda a: a, match=ulp(2),
        variants={"v": asm("mov.b32 $0, $1;")},
    )  # fmt: skip
    a = np.concatenate([np.arange(1, 401) % farthest + 1, SMALL]).astype(np.uint32)
    got = np.where(a <= farthest, 0, a).astype(np.uint32)
    cause = judge(case, policies(case, case.variants["v"]), {"a": a}, {"d": got}).cause
    assert cause.endswith("state ulp(2, underflow=True)") == named
    assert named or not cause


def test_outputs_of_two_bounds_name_both():
    case = Case(
        inputs={"a": F32}, outputs={"d": F32, "e": F32}, reference=lambda a: (a, a),
        match={"d": ulp(2), "e": ulp(3)}, variants={"v": asm("mov.b32 $0, $2; mov.b32 $1, $2;", "=r,=r,r")},
    )  # fmt: skip
    a = np.concatenate([np.full(40, 1), SMALL]).astype(np.uint32)
    got = np.where(a == 1, 0, a).astype(np.uint32)
    cause = judge(case, policies(case, case.variants["v"]), {"a": a}, {"d": got, "e": got}).cause
    assert "within 2 and 3 ulp" in cause
    assert cause.endswith("state ulp(2, underflow=True) and ulp(3, underflow=True)")


def test_numbers_instead_of_zeros_are_no_flush():
    zero = np.zeros_like(SMALL)
    assert of_two(SMALL, a=zero, b=zero).cause == ""


@triton.jit
def total(x_ptr, y_ptr):
    lane = tl.arange(0, 32)
    tl.store(y_ptr + lane, tl.load(x_ptr + lane))


def of_rows(got):
    case = Case(
        inputs={"x": U32["N"]}, outputs={"y": U32["N"]}, sizes=[{"N": 64}],
        reference=lambda x: (x * 0).index_fill(0, (x * 0 + 1).nonzero().reshape(-1), 5),
        variants={"v": kernel(total, grid=(1,))},
    )  # fmt: skip
    return judge(case, policies(case, case.variants["v"]), {"x": np.arange(64, dtype=np.uint32)}, {"y": got})


@pytest.mark.parametrize("apart", [1, 2, 4, 8, 16])
def test_a_missing_step_of_a_butterfly_is_named_by_its_distance(apart):
    got = np.where(np.arange(64) & apart, 7, 9).astype(np.uint32)
    assert of_rows(got).cause.endswith(f"is the exchange between lanes {apart} apart missing?")
    assert of_rows(np.arange(64, dtype=np.uint32)).cause == ""
    assert of_rows(np.full(64, 7, np.uint32)).cause == ""


def both(x):
    return x, x * 3 & 0xFFFFFFFF


def of_outputs(first, second):
    names = {"d": U32, "e": U32}
    case = Case(
        inputs={"x": U32}, outputs=names, reference=both, variants={"v": asm("mov.b32 $0, $2; mov.b32 $1, $2;")}
    )
    return judge(case, policies(case, case.variants["v"]), {"x": SMALL}, {"d": first, "e": second}).cause


def test_outputs_in_another_order_are_named():
    assert of_outputs(SMALL * 3, SMALL).startswith(
        "the outputs are in another order: d has those of e, e has those of d;"
    )
    assert of_outputs(SMALL * 3, SMALL * 3) == ""
    wrong = SMALL.copy()
    wrong[7] ^= 1
    assert of_outputs(SMALL * 3, wrong) == ""


def places_of_pairs(first, second):
    """The cause of outputs of one invocation of two elements each, where d = x and e = x * 3."""
    case = Case(
        inputs={"x": U32}, outputs={"d": U32, "e": U32}, reference=both,
        variants={"v": asm("mov.b32 $0, $4;", constraints="=r,=r,=r,=r,r,r", pack=2)},
    )  # fmt: skip
    policy = policies(case, case.variants["v"])
    return judge(case, policy, {"x": SMALL}, {"d": first, "e": second}, pack=2).cause


def test_results_in_places_of_another_output_are_named():
    d, e = SMALL.copy(), SMALL * 3
    d[1::2], e[0::2] = (SMALL * 3)[0::2], SMALL[1::2]
    assert places_of_pairs(d, e) == (
        "the results of a pack are in other places, d[1] has that of e[0], e[0] has that of d[1]: "
        "write each where the reference has it"
    )
    d[5] ^= 1
    assert places_of_pairs(d, e) == ""


def test_a_result_that_stands_in_two_places_is_no_exchange():
    e = SMALL * 3
    e[0::2] = SMALL[1::2]
    assert places_of_pairs(SMALL, e) == ""


def generated(seed):
    import torch

    return (torch.arange(256) + seed) * 2654435761 & 0xFFFFFFFF


def of_generator(got, inputs=None, n=1):
    case = Case(
        inputs={"seed": U32["N"]}, outputs={"y": U32["M"]}, sizes=[{"N": n, "M": 256}], reference=generated,
        variants={"v": kernel(total, grid=(1,))},
    )  # fmt: skip
    seed = np.zeros(n, np.uint32) if inputs is None else inputs
    return judge(case, policies(case, case.variants["v"]), {"seed": seed}, {"y": got}).cause


RANDOM = (np.arange(256, dtype=np.uint64) * 2654435761 & 0xFFFFFFFF).astype(np.uint32)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (RANDOM.reshape(-1, 4).T.reshape(-1), "y has its codes in 4 planes, one after the other: interleave them"),
        (RANDOM.reshape(4, -1).T.reshape(-1), "y has its codes interleaved by 4: store them in 4 planes"),
        (RANDOM.reshape(-1, 4)[:, [0, 2, 1, 3]].reshape(-1),
         "each 4 consecutive codes of y are in the wrong order: those of places 0, 2, 1, 3"),
    ],
)  # fmt: skip
def test_words_of_a_generator_in_another_order_are_named(got, words):
    assert of_generator(got) == words
    wrong = got.copy()
    wrong[9] ^= 1
    assert of_generator(wrong) == ""


def of_words(got, x=FLOATS):
    case = Case(inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x, variants={"v": asm("mov.b32 $0, $1;")})
    return judge(case, policies(case, case.variants["v"]), {"x": x}, {"y": got}).cause


WORDS = np.random.default_rng(5).integers(0, 2**32, 400, dtype=np.uint32)


def test_bytes_in_another_order_are_named():
    """prmt with two digits of its selector exchanged, and with all of them."""
    low = WORDS.view(np.uint8).reshape(-1, 4)
    exchanged = low[:, [0, 2, 1, 3]].copy().view(np.uint32).reshape(-1)
    said = "the bytes of y are in another order: byte 1 has that of byte 2, byte 2 has that of byte 1"
    assert of_words(exchanged, WORDS) == said
    assert "byte 0 has that of byte 3" in of_words(WORDS.byteswap(), WORDS)
    exchanged[7] ^= 1
    assert of_words(exchanged, WORDS) == ""


def test_bytes_that_are_twice_the_same_or_hardly_differ_name_no_order():
    twice = WORDS.view(np.uint8).reshape(-1, 4)[:, [0, 0, 2, 3]].copy().view(np.uint32).reshape(-1)
    assert of_words(twice, WORDS) == ""
    few = np.arange(1, 401, dtype=np.uint32) % 7 * 0x01000100
    assert of_words(few.byteswap(), few) == ""


def test_an_order_that_inputs_could_have_is_not_named():
    """x and -x by turns: a forgotten sign exchanges neighbours, too."""
    assert of_generator(RANDOM.reshape(-1, 2)[:, ::-1].reshape(-1), np.zeros(256, np.uint32), 256) == ""


def test_pieces_of_one_set_keep_a_cause_that_they_share():
    one, other = Judgement(total=5, different=5, cause="x"), Judgement(total=5, different=5, cause="x")
    assert one.merged(other).cause == "x"
    assert one.merged(Judgement(total=5)).cause == "x"
    assert one.merged(Judgement(total=5, different=1)).cause == ""
