from __future__ import annotations

import pytest

from ptxdiff.model.targets import ALL, INTRODUCED, KNOWN, NONE, capability, normal, only, since, target_set


@pytest.mark.parametrize("spelling", ["sm_90a", "sm_90", "sm90", "90", "90a", " SM_90A "])
def test_common_spellings_of_a_target(spelling):
    assert normal(spelling) == "sm_90a"


@pytest.mark.parametrize("word", ["", "sm_", "sm_91", "hoper", "sm_90b"])
def test_the_error_for_an_unknown_target_lists_the_targets(word):
    with pytest.raises(ValueError, match=r"known: sm_75, .*sm_121a"):
        normal(word)


@pytest.mark.parametrize(
    ("name", "target"),
    [("hopper", "sm_90a"), ("H100", "sm_90a"), ("b200", "sm_100a"), ("RTX 4090", "sm_89"), ("rtx_5090", "sm_120a")],
)
def test_products_and_generations_are_targets(name, target):
    assert normal(name) == target


def test_the_version_of_the_isa_is_known_for_each_target():
    """Without it, programs for a new target would state a version that every assembler refuses."""
    assert set(KNOWN) <= INTRODUCED.keys()


def test_a_misspelt_target_gets_the_nearest_names():
    with pytest.raises(ValueError, match="did you mean hopper"):
        normal("hoper")


def test_the_text_of_a_set_names_its_targets():
    blackwell = only("100", "120")
    assert list(blackwell) == ["sm_100a", "sm_120a"]
    assert "sm_90a" in ALL - blackwell
    assert (ALL - blackwell).text == "every target except sm_100a, sm_120a"
    assert set(since("sm_100")) == {t for t in KNOWN if capability(t) >= 100}
    assert set(only("sm_75") | only("sm_80")) == {"sm_75", "sm_80"}
    assert not set(NONE)


@pytest.mark.parametrize("value", ["sm_80", ["sm_80"], ("80",), only("sm_80")])
def test_a_declaration_in_any_spelling(value):
    assert set(target_set(value)) == {"sm_80"}


@pytest.mark.parametrize("value", [None, 90, [90], ["sm_80", None]])
def test_a_declaration_that_names_no_target_says_what_to_write(value):
    with pytest.raises(ValueError, match=r"is no target: give a name such as 'sm_90a', .* since\('sm_80'\)"):
        target_set(value)
