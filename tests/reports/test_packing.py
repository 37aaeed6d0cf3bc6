"""Packets that are certainly too large are not made, and the page is the same as if all were tried."""

import base64
import json
import zlib

import pytest

from ptxdiff.reports import html, packing
from ptxdiff.reports.model import view
from tests.support.reports import synthetic
from tests.support.reports.written_page import written
from tests.support.sampling import only


@pytest.fixture(scope="module")
def base():
    return [synthetic.catalogue(8, synthetic.TARGETS[3:8], per_cell=5)]


@pytest.fixture
def made(monkeypatch):
    """The listings that were made."""
    found = []
    listed = packing._listing
    monkeypatch.setattr(packing, "_listing", lambda *given: found.append(1) or listed(*given))
    return found


@pytest.mark.sample(2)
@pytest.mark.parametrize("budget", only([200, 1500, 2000, 4000, 6000], [1500, 4000]))
def test_the_page_equals_that_of_making_every_listing(base, tmp_path, monkeypatch, made, budget):
    monkeypatch.setattr(html, "PACKET_BUDGET", 8 * budget)
    monkeypatch.setattr(html, "made_in_forks", lambda make, cases: [make(case) for case in cases])
    (tmp_path / "quick").mkdir()
    (tmp_path / "all").mkdir()
    quick = written(tmp_path / "quick", base)
    first = len(made)
    monkeypatch.setattr(packing, "_TYPICAL", 0.0)
    assert quick == written(tmp_path / "all", base)
    assert first <= len(made) - first
    if budget <= 1500:
        assert first < len(made) - first


@pytest.mark.parametrize("budget", [500, 1200, 2500])
def test_a_packet_lists_as_many_kernels_as_fit_and_one_of_each_variant_first(base, budget):
    found = view(base[0])
    for case in found.cases:
        text, omission = packing.packet(found, case, None, budget)
        packet = opened(text)
        listed = [packet["strings"][names[0]] for names in packet["listings"]]
        every = opened(packing.packet(found, case, None, 1 << 30)[0])["listings"]
        variants = {r.key.variant for r in base[0].results if r.key.case == case}
        assert len(set(listed)) == min(len(listed), len(variants))
        assert len(text) <= budget or not listed
        assert f"{len(listed)} of {len(every)} compiled" in omission or len(listed) in (0, len(every))
        assert ("no compiled kernel" in omission) == (not listed)
        assert (omission == "") == (len(listed) == len(every))
        for row in packet["results"]:  # a result's number is that of its own listing
            n = row[-1]
            assert n < 0 or packet["strings"][row[0]] == listed[n]


def test_a_packet_that_is_kept_says_the_same(base):
    class Keeper(dict):
        def get(self, *parts):
            return super().get(parts)

        def put(self, data, *parts):
            self[parts] = data

    found, kept = view(base[0]), Keeper()
    first = packing.packet(found, "rcp", None, 1500, kept)
    assert "compiled kernel" in first[1]
    assert packing.packet(found, "rcp", None, 1500, kept) == first
    assert len(kept) == 1
    assert packing.packet(found, "rcp", None, 1 << 30, kept)[1] == ""


def test_a_wrong_estimate_gives_the_same_packets(base, monkeypatch):
    found = view(base[0])
    cells = [(case, budget) for case in found.cases for budget in (1200, 2500, 4000)]
    right = [packing.packet(found, case, None, budget) for case, budget in cells]
    assert any("compiled kernels are" in omission for _, omission in right)
    for estimate in (0.0, 0.2, 5.0, 1 << 40):
        monkeypatch.setattr(packing, "_TYPICAL", estimate)
        assert [packing.packet(found, case, None, budget) for case, budget in cells] == right


def test_where_nothing_fits_the_page_says_so(base, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "PACKET_BUDGET", 1)
    assert "For size, no compiled kernel is listed" in written(tmp_path, base)


def opened(text):
    return json.loads(zlib.decompress(base64.b64decode(text)))


@pytest.mark.parametrize(
    "text", ["a\x1bb", "\u202ex", "\ud800", "\\x1b", "\\", "a\nb\t", "\r", "\x7f", "\x08", '"', "é", "\\n\\u0041"]
)
def test_a_packet_has_texts_as_the_page_shows_them(text):
    """Most packets are written without looking at each of their texts."""
    content = {"a": [1, [text, "plain"]], text: {"b": text}}
    expected = json.loads(json.dumps(packing.seen(content)))
    assert opened(packing.compress(content)) == expected
