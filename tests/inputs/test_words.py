"""Tuples: what stands in the lanes of a pack together, and which sets have whole tuples."""

import itertools

import numpy as np
import pytest

from ptxdiff import Case, asm, kernel, plain
from ptxdiff.inputs import word_sets
from ptxdiff.inputs.edges import edge_codes
from ptxdiff.inputs.fill import shaped
from ptxdiff.inputs.sets import all_words, has_tuples
from ptxdiff.inputs.words import constant_relations, constant_words, word_inputs
from ptxdiff.model.match import Domain
from ptxdiff.model.packs import PACKS, packs_in_code
from ptxdiff.model.variants import PtxVariant
from ptxdiff.references.formats import E2M1X2, F16, F32, U8, U16, U32


def tuples(*formats, pack, effort="quick", thresholds=None):
    names = {f"x{k}": f for k, f in enumerate(formats)}
    rows = thresholds or [np.zeros(0, dtype=np.int64) for _ in formats]
    return [c.reshape(-1, pack) for c in word_inputs(names, pack, effort, rows, None)]


def rows_of(array):
    return {tuple(row) for row in array.tolist()}


@pytest.mark.parametrize(("fmt", "pack"), [(U8, 4), (U8, 2), (F16, 2), (U16, 4), (F32, 4)], ids=lambda v: str(v))
def test_every_edge_is_in_all_lanes_and_in_each_lane_alone(fmt, pack):
    (x,) = tuples(fmt, pack=pack)
    one = 1 if not fmt.is_float else {16: 0x3C00, 32: 0x3F800000}[fmt.code_bits]
    found = rows_of(x)
    for edge in edge_codes(fmt):
        assert (edge,) * pack in found
        for lane, others in itertools.product(range(pack), (0, one)):
            assert tuple(edge if k == lane else others for k in range(pack)) in found
    for lane in range(pack):
        rest = np.delete(x, lane, axis=1)
        ordinary = x[~np.isin(rest, (0, one)).any(axis=1), lane]
        assert set(edge_codes(fmt)) <= set(ordinary.tolist())


def test_every_pair_of_edges_is_in_every_two_lanes():
    (x,) = tuples(U8, pack=4)
    few = {0, 1, 0x7F, 0x80, 0xFF}
    for i, j in itertools.combinations(range(4), 2):
        pairs = rows_of(x[:, [i, j]])
        assert set(itertools.product(few, few)) <= pairs
        assert len(pairs) > 31**2


def test_nibbles_are_lanes():
    (x,) = tuples(E2M1X2, pack=4)
    words = {int.from_bytes(bytes(row), "little") for row in x.tolist()}
    assert {0x88888888, 0x00000007, 0x70000000, 0x0F0F0F0F} <= words


def test_two_inputs_are_one_tuple():
    a, b = tuples(U8, U8, pack=4)
    zero_a, zero_b = (a == 0).all(axis=1), (b == 0).all(axis=1)
    assert (zero_a & zero_b).any()
    assert (zero_a & (b != 0).all(axis=1)).any()
    assert ((a == b).all(axis=1) & ~(a == a[:, :1]).all(axis=1)).any()


def test_thresholds_stand_in_all_lanes():
    (x,) = tuples(U16, pack=2, thresholds=[np.array([0x1234, 0x1235])])
    assert {(0x1234, 0x1234), (0x1235, 0x1235)} <= rows_of(x)


def test_numbers_of_the_asm_stand_in_words_under_masks_and_in_lanes():
    names = {"x": U8}
    (x,) = constant_words(names, 4, [0x37C5E21B, 0x00FFFF00], None)
    words = {int.from_bytes(bytes(row), "little") for row in x.astype(np.uint8).reshape(-1, 4).tolist()}
    assert {0x37C5E21B, 0x37C5E21A, 0xC83A1DE4, 0x00C5E200, 0x1B1B1B1B, 0x001B0000} <= words
    assert any(w & 0x00FFFF00 == 0 and w & 0xFF0000FF not in (0, 0xFF0000FF) for w in words)


def test_two_registers_as_one_of_64_bits_times_a_number_make_another():
    number = 0x37C5E21B91D3A
    (x,) = constant_words({"x": U8}, 8, [3, number], None)
    whole = [int.from_bytes(bytes(row), "little") for row in x.astype(np.uint8).reshape(-1, 8).tolist()]
    assert any(w * 3 % (1 << 64) == number for w in whole)


def test_the_product_of_two_bytes_is_a_number_of_the_asm():
    (x,) = constant_relations({"x": U8}, 4, [81 * 149], None)
    for i, j in itertools.permutations(range(4), 2):
        assert (81, 149) in rows_of(x.reshape(-1, 4)[:, [i, j]])


def test_two_words_make_a_number_of_the_asm_in_one_step():
    a, b = (c.reshape(-1, 2) for c in constant_relations({"a": F16, "b": F16}, 2, [0x37C5621B], None))
    one, other = ((w[:, 0] | w[:, 1] << 16).astype(np.uint64) for w in (a, b))
    for made in (one & other, one | other, one * other & 0xFFFFFFFF, one * other >> np.uint64(32)):
        assert ((made == 0x37C5621B) & (one != other)).any()


@pytest.mark.parametrize("step", [lambda x, y: x + y, lambda x, y: x * y], ids=["sum", "product"])
def test_two_halves_of_a_word_make_a_number_of_the_asm(step):
    (x,) = constant_relations({"x": F16}, 2, [0x3E3D], None)
    with np.errstate(all="ignore"):
        low, high = (c.astype(np.uint16).view(np.float16) for c in x.reshape(-1, 2).T)
        made = step(low, high) == np.array([0x3E3D], np.uint16).view(np.float16)
        assert (made & (np.minimum(abs(low), abs(high)) > 0.1) & (np.abs(np.frexp(low)[0]) != 0.5)).any()


def test_one_element_of_one_code_is_no_tuple():
    assert not tuples(U32, pack=1)[0].size
    assert tuples(E2M1X2, pack=1)[0].size


def case_of(*formats, where=None):
    return Case(
        inputs={f"x{k}": f for k, f in enumerate(formats)}, outputs={"y": formats[0]}, variants={"v": asm("")},
        reference=lambda x0, *others: x0, where=where, source="a test",
    )  # fmt: skip


def test_a_domain_keeps_tuples_whole_and_inside():
    case = case_of(F32, where=Domain("positive", lambda v: v["x0"] > 0))
    for made in word_sets(case, "quick", asm("and.b32 $0, $2, 0xffff;", pack=2), 2):
        values = made.all()["x0"].view(np.float32)
        assert made.count % 2 == 0
        assert (values > 0).all()
        assert (values[::2] == values[1::2]).any()
        assert (values[::2] != values[1::2]).any()


def test_sets_keep_tuples_together_in_every_shape_and_order():
    (made, *_) = word_sets(case_of(U8), "quick", asm("mov.b32 $0, $1;", pack=4), 4)
    whole = rows_of(made.all()["x0"].reshape(-1, 4))
    for size, seed in itertools.product((4, 1009, 4096, 4 * made.count), (None, 7)):
        x = shaped(made, (size,), seed)["x0"]
        assert len(x) == size
        assert rows_of(x[: size - size % 4].reshape(-1, 4)) <= whole
    assert (shaped(made, (4096,), 7)["x0"] != shaped(made, (4096,))["x0"]).any()


def test_all_words_are_every_tuple_once():
    made = all_words(case_of(U8), 2)
    assert made.count == 2 << 16
    words = made.all()["x0"].view(np.uint16)
    assert (np.sort(words) == np.arange(1 << 16)).all()
    two = all_words(case_of(E2M1X2, U8), 1)
    assert len(rows_of(np.stack(list(two.all().values()), axis=1))) == 1 << 16


@pytest.mark.parametrize(
    ("effort", "pack", "name"),
    [
        ("quick", 2, "words-2/1"),
        ("full", 2, "all-words-2/1"),
        ("full", 4, "words-4-full/1"),
        ("exhaustive", 4, "all-words-4/1"),
        ("exhaustive", 8, "words-8-full/1"),
    ],
)
def test_what_runs_of_a_pack_of_bytes(effort, pack, name):
    (made, *_) = word_sets(case_of(U8), effort, asm("mov.b32 $0, $1;", pack=pack), pack)
    assert made.name == name
    assert made.group == pack
    assert has_tuples(name)


def test_names_of_sets_of_elements():
    assert not any(map(has_tuples, ("exhaustive/1", "constants/3", "edges-full/1", "none", "generated/1")))


@pytest.fixture(scope="module")
def packed():
    return pytest.importorskip("tests.support.inputs.packed")


@pytest.mark.parametrize(
    ("name", "packs"),
    [
        ("of_four", (4,)),
        ("of_four_by_itself", (4,)),
        ("of_four_and_one", (4,)),
        ("of_four_and_two", (2, 4)),
        ("by_a_global", (4,)),
        ("by_another_name", (4,)),
        ("by_operands", (2,)),
        ("by_an_alias_of_split", (2, 4)),
        ("by_a_sum_of_all", (4,)),
        ("by_an_axis", (4,)),
        ("by_an_exchange", (4,)),
        ("by_a_name_of_two_values", (2,)),
        ("through_a_module", (2,)),
        ("through_a_package", (2,)),
        ("shifted", ()),
        ("without_asm", ()),
    ],
)
def test_the_packs_of_asm_in_triton_functions_are_those_of_its_calls(packed, name, packs):
    assert packs_in_code(plain(getattr(packed, name)), [8]) == packs


@pytest.mark.parametrize(
    "name",
    [
        "by_an_argument", "by_a_default", "by_a_sum", "assigned", "without_a_call", "given_to", "by_settings",
        "by_a_loop", "by_a_width", "by_a_name_in_text", "through_globals", "of_a_kept_module",
    ],
)  # fmt: skip
def test_where_a_pack_cannot_be_read_it_may_be_any(packed, name):
    assert packs_in_code(plain(getattr(packed, name)), [8]) == PACKS


def test_a_pack_that_the_variant_gives(packed):
    assert packs_in_code(plain(packed.by_an_argument, constants={"PACK": 2}), [8]) == (2,)
    assert packs_in_code(plain(packed.of_a_given_module, constants={"MODULE": packed.packed_helpers}), [8]) == PACKS
    assert packs_in_code(plain(packed.again, constants={"PACK": 2}), [8]) == PACKS
    assert packs_in_code(plain(packed.of_given_asm, constants={"ASM": packed.renamed}), [8]) == PACKS
    assert packs_in_code(plain(packed.of_given_asm, constants={"ASM": packed.of_two}), [8]) == (2,)
    assert packs_in_code(plain(packed.of_given_functions, constants={"FUNCTIONS": (packed.of_two,)}), [8]) == (2,)


def test_whole_kernels_move_elements_by_their_addresses(packed):
    assert packs_in_code(kernel(packed.shifted, grid=(1,)), [8]) == (4, 8, 16)


@pytest.mark.parametrize(
    ("load", "packs"),
    [
        ("ld.global.u32 %r1, [%rd1];", (4,)),
        ("ld.global.nc.L1::no_allocate.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];", (16,)),
        ("ld.global.u8 %r1, [%rd1];", ()),
        ("ld.param.u64 %rd1, [x];", ()),
    ],
)
def test_the_packs_of_given_ptx_are_its_loads(load, packs):
    variant = PtxVariant(text=load, grid=1, block=128, parameters=[])
    assert packs_in_code(variant, [8]) == packs
