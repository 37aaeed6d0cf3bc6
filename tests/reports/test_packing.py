"""Packets that are certainly too large are not made, and the page is the same as if all were tried."""

import base64
import json
import zlib

import pytest

from ptxdiff.reports import html, packing
from tests.support.reports import synthetic
from tests.support.reports.written_page import written
from tests.support.sampling import only


@pytest.fixture(scope="module")
def base():
    return [synthetic.catalogue(8, synthetic.TARGETS[3:8], per_cell=5)]


def counting(monkeypatch):
    made = []
    deflated = packing.deflated  # `compress` ends with it, and `_code` reads the module of `compress`
    monkeypatch.setattr(packing, "deflated", lambda text: made.append(1) or deflated(text))
    return made


@pytest.mark.sample(2)
@pytest.mark.parametrize("budget", only([200, 1500, 2000, 4000, 6000], [1500, 4000]))
def test_the_page_equals_that_of_trying_every_packet(base, tmp_path, monkeypatch, budget):
    monkeypatch.setattr(html, "PACKET_BUDGET", 8 * budget)
    (tmp_path / "quick").mkdir()
    (tmp_path / "tried").mkdir()
    made = counting(monkeypatch)
    quick = written(tmp_path / "quick", base)
    first = len(made)
    monkeypatch.setattr(packing, "_PARTLY", 0.0)
    assert quick == written(tmp_path / "tried", base)
    assert first <= len(made) - first
    if budget <= 1500:
        assert first < len(made) - first


def test_a_very_wrong_estimate_omits_listings_and_says_so(base, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_PARTLY", 1 << 40)
    assert "For size, no listing is kept on this page" in written(tmp_path, base)


@pytest.mark.parametrize(
    "text", ["a\x1bb", "\u202ex", "\ud800", "\\x1b", "\\", "a\nb\t", "\r", "\x7f", "\x08", '"', "é", "\\n\\u0041"]
)
def test_a_packet_has_texts_as_the_page_shows_them(text):
    """Most packets are written without looking at each of their texts."""
    content = {"a": [1, [text, "plain"]], text: {"b": text}}
    expected = json.loads(json.dumps(packing.seen(content)))
    assert json.loads(zlib.decompress(base64.b64decode(packing.compress(content)))) == expected
