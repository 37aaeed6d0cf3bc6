"""The page: its contents, that it loads nothing, and that only its own two scripts run."""

import base64
import dataclasses
import hashlib
import json
import re
import zlib
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ptxdiff.records import Area, Bits, Proof, Text
from ptxdiff.reports import html
from ptxdiff.reports.conformance import LedgerError
from ptxdiff.reports.model import PROVED, view
from tests.support.reports import hostile, synthetic
from tests.support.reports.written_page import written

TARGETS = ("sm_80", "sm_86", "sm_90a", "sm_100a")  # forty pages are made here; one is of the whole catalogue
VOID = {"meta", "input", "br", "img", "link", "hr", "wbr"}
TAGS = {
    "a", "article", "b", "body", "br", "button", "caption", "code", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "head", "header", "html", "image",
    "input", "kbd", "label", "legend", "li", "line", "main", "mask", "meta", "nav", "ol", "option", "output", "p",
    "pre", "rect", "script", "section", "select", "small", "span", "strong", "style", "summary", "svg", "table",
    "tbody", "td", "text", "th", "thead", "time", "title", "tr", "tspan", "ul", "wbr",
}  # fmt: skip


class Page(HTMLParser):
    """The page's elements and the text outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.stack = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, f"</{tag}> at {self.getpos()} closes another element"

    def handle_data(self, data):
        if self.stack and self.stack[-1] not in ("script", "style"):
            self.text.append(data)

    @property
    def words(self):
        return " ".join("".join(self.text).split())

    def ids(self):
        return [a["id"] for _, a in self.elements if "id" in a]


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue(8, TARGETS, per_cell=5)


@pytest.fixture(scope="module")
def small():
    """A run for tests that make the same page again and again."""
    return synthetic.catalogue(2, TARGETS[:2], per_cell=3)


@pytest.fixture(scope="module")
def page_of_base(base, tmp_path_factory):
    """The page of `base` alone, which several tests read."""
    return written(tmp_path_factory.mktemp("base"), [base])


def inflated(raw):
    return zlib.decompress(base64.b64decode(raw)).decode()


def packet(text, case):
    (raw,) = (m[2] for m in re.finditer(r'data-case="([^"]*)">([\w+/=]+)</script>', text) if unescape(m[1]) == case)
    return json.loads(inflated(raw))


FOLDED = re.compile(r'<div class="folded"><p.*?</p><script type="application/octet-stream">([\w+/=]+)</script></div>')


def unfolded(text):
    """The page with all of its packed HTML unpacked in its place."""
    return FOLDED.sub(lambda m: inflated(m[1]), text)


def test_the_page_is_well_formed_and_loads_nothing(page_of_base):
    text = page_of_base
    page = Page(text)
    assert page.stack == []
    assert {tag for tag, _ in page.elements} <= TAGS
    for tag, attributes in page.elements:
        assert not {"src", "action", "formaction", "srcset", "background"} & attributes.keys(), tag
        assert attributes.get("href", "#").startswith("#")
    assert "@import" not in text
    assert "url(" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_every_link_has_its_target_and_every_id_is_unique(base, tmp_path):
    page = Page(written(tmp_path, list(synthetic.nights(base, 6))))
    ids = page.ids()
    assert len(ids) == len(set(ids))
    links = {a["href"][1:] for _, a in page.elements if a.get("href", "").startswith("#")}
    assert links <= set(ids)
    assert {f"cell--rcp--asm.rn--{t}" for t in TARGETS} <= set(ids)


def test_without_scripts_the_page_has_verdict_matrix_failures_and_code(base, tmp_path):
    results = [synthetic.failing(r) if (r.key.case, r.key.variant) == ("rcp", "asm.rn") else r for r in base.results]
    page = Page(written(tmp_path, [dataclasses.replace(base, results=results)]))
    words = page.words
    assert "✗ Failed" in words
    assert "1 variant gives wrong bits: rcp::asm.rn" in words
    assert "repeat pytest cases/rcp.py --ptx-replay=" in words
    assert "NVIDIA H200 (sm_90a)" in words
    assert "driver 570.86.15" in words
    assert "seed 0" in words
    assert "≈ model only" in words
    assert "⊘ unsupported" in words
    assert "Feature '.e2m1x2' requires .target sm_100a" in words
    assert "rcp.approx.ftz.f32 %r20, %r1;" in words
    assert "MUFU.RCP" in words


def test_products_that_ptxas_fused_stand_beside_their_source_line(base, tmp_path):
    ptx = '.file 1 "/home/someone/kernel.py"\n.loc 1 12 5\nmul.f32 %p, %a, %b;\n.loc 1 14 9\nadd.f32 %d, %p, %c;\n'
    words = "mul.f32 %p, %a, %b; of line 3 into add.f32 %d, %p, %c; of line 5"
    first = base.results[0]
    machine = dataclasses.replace(
        first, key=dataclasses.replace(first.key, backend="sass", input_set="machine"), evidence="model", ptx="fedc",
        ptxas="ptxas 13.4", fused={"5": words}, weakest="the weakest form that ran is FFMA",
    )  # fmt: skip
    run = dataclasses.replace(
        base, results=[*base.results, machine], texts={**base.texts, "fedc": Text("fedc", "ptx", ptx)}
    )
    page = Page(written(tmp_path, [run])).words
    assert f"kernel.py:14 {words}" in page
    assert "the weakest form that ran is FFMA" in page


def test_code_is_shown_without_the_indentation_of_its_file(base, tmp_path):
    info = base.cases["rcp"]
    block = "\n            {\n                mov.b32 $0, $1;\n            }\n            "
    variants = info.variants | {"asm.rn": dataclasses.replace(info.variants["asm.rn"], texts={"1": block})}
    cases = base.cases | {"rcp": dataclasses.replace(info, variants=variants)}
    text = "".join(Page(written(tmp_path, [dataclasses.replace(base, cases=cases)])).text)
    assert "{\n    mov.b32 $0, $1;\n}" in text


def test_all_five_verdicts_and_expected_failures_are_counted_in_words(page_of_base):
    words = Page(page_of_base).words
    for part in ("✓ pass", "✗ fail", "⊘ unsupported", "⚠ error", "○ not run", "⊗ expected failure"):
        assert part in words


def test_a_proof_is_shown_beside_the_evidence_of_the_same_definition_alone(base, tmp_path):
    """It raises no state: a proof of another definition, of fewer packs, or of a variant that fails is not shown."""
    passes = [r for r in base.results if r.verdict == "pass" and not r.expected_failure]
    (key, *_) = [r.key for r in passes if r.key.backend == "emulator"]
    same = {"text": "ab", "match": "cd"}
    mine = [
        dataclasses.replace(r, fingerprint=same)
        for r in passes
        if (r.key.case, r.key.variant, r.key.target) == (key.case, key.variant, key.target)
    ]
    packs = tuple({r.key.pack for r in mine})
    proof = Proof(key.case, key.variant, key.target, "proved", packs=packs, program="ab", rules="cd", fingerprint=same)

    def shown(results, one):
        records = dataclasses.replace(base, results=results, proofs=[one])
        cell = view(records).rows
        (found,) = [r.cells[key.target] for r in cell if (r.case, r.variant) == (key.case, key.variant)]
        marked = "proved for all inputs" in found.describe
        assert marked == (PROVED in found.marks)
        assert found.evidence == tuple(m for m in found.marks if m is not PROVED)
        return marked

    assert shown(mine, proof)
    assert "∀ proved" in Page(written(tmp_path, [dataclasses.replace(base, results=mine, proofs=[proof])])).words
    for change in (
        {"fingerprint": {"text": "ab", "match": "ce"}}, {"fingerprint": {}}, {"packs": (64,)}, {"target": "sm_75"},
        {"verdict": "not settled", "words": "time"}, {"against": "other"}, {"against": "sass", "assembler": "ptxas"},
    ):  # fmt: skip
        assert not shown(mine, dataclasses.replace(proof, **change)), change
    assert not shown([dataclasses.replace(r, fingerprint={}) for r in mine], dataclasses.replace(proof, fingerprint={}))
    assert not shown([*mine, dataclasses.replace(mine[0], verdict="fail", words="wrong")], proof)
    assert not shown([*mine, dataclasses.replace(mine[0], fingerprint={"text": "other"})], proof)


def test_proofs_are_listed_and_a_counterexample_fails_the_page(base, tmp_path):
    proof = Proof("rcp", "asm.rn", "sm_90a", "proved", packs=(1, 2), program="ab12", rules="cd34")
    proof = dataclasses.replace(proof, solver="bitwuzla 0.9.1", seconds=3.25)
    machine = dataclasses.replace(proof, against="sass", assembler="ptxas 13.0.88 -O3 (0123)", solver="")
    good = dataclasses.replace(base, results=[r for r in base.results if r.verdict == "pass"])
    words = Page(written(tmp_path, [dataclasses.replace(good, proofs=[proof, machine])])).words
    for part in ("2 of 2 are proved", "1, 2bitwuzla 0.9.13.2ab12 cd34", "sass of ptxas 13.0.88 -O3 (0123)", "✓ Passed"):
        assert part in words
    wrong = dataclasses.replace(proof, verdict="counterexample", words="y: expected 0x1, got 0x2")
    wrong = dataclasses.replace(wrong, inputs={"a": ("0x7",)})
    words = Page(written(tmp_path, [dataclasses.replace(good, proofs=[wrong])])).words
    assert "a solver found an input on which rcp::asm.rn is wrong" in words
    assert "y: expected 0x1, got 0x2; input a = 0x7" in words
    assert "✓ Passed" not in words
    assert "terms alone" not in Page(written(tmp_path, [good])).words


def test_items_that_did_not_run_are_shown_with_their_reason(base, tmp_path):
    reason = "no NVIDIA GPU: CUDA is not available"
    results = [
        dataclasses.replace(r, verdict="not run", evidence="none", words=reason) if r.key.backend == "gpu" else r
        for r in base.results
    ]
    words = Page(written(tmp_path, [dataclasses.replace(base, results=results)])).words
    assert words.count(reason) == 1
    assert "results did not run (gpu)" in words


@pytest.mark.parametrize(
    ("results", "end", "verdict"),
    [([], True, "○ Nothing ran"), ([], False, "◔ Cut short"), (None, False, "◔ Cut short")],
)
def test_a_run_without_a_verdict_is_reported_as_such(base, tmp_path, results, end, verdict):
    run = dataclasses.replace(base, results=base.results if results is None else results, end=base.end if end else None)
    words = Page(written(tmp_path, [run])).words
    assert verdict in words
    assert "✓ Passed" not in words


def test_a_run_that_was_cut_short_before_its_cases_is_still_shown(base, tmp_path):
    run = dataclasses.replace(base, cases={}, texts={}, results=base.results[:30], end=None)
    assert "The run was cut short before it described this case" in Page(written(tmp_path, [run])).words


def test_the_planted_changes_are_before_the_matrix(base, tmp_path):
    text = written(tmp_path, synthetic.nights(base))
    first = " ".join(Page(text[: text.index('id="matrix"')] + '">').text)
    for phrase in (
        "no longer runs",
        "worst error moved",
        "speed changed",
        "register spills changed",
        "output bits changed",
    ):
        assert phrase in first
    assert "2026-03-09" in first
    assert synthetic.digest("git", 8)[:12] in first


@pytest.mark.slow
def test_a_history_without_changes_says_so(base, tmp_path):
    words = Page(written(tmp_path, synthetic.nights(base, planted={}))).words
    assert "Nothing: verdicts, bits, errors, resources and speed are those of the first run" in words


def test_digests_of_an_environment_have_twelve_digits_and_all_of_them_as_title(base, tmp_path):
    runs = list(synthetic.nights(base, 2, planted={}))
    for number, run in enumerate(runs):
        run.run.environment["harness"] = f"{number}123456789ab" + "0" * 20
    text = written(tmp_path, runs)
    shown = [f'<code title="{n}123456789ab{"0" * 20}">{n}123456789ab</code>' for n in (0, 1)]
    assert f"harness: {shown[0]} → {shown[1]}" in text  # the history
    assert f"<dt>harness</dt><dd>{shown[1]}</dd>" in text
    assert html.short_digests("<b> 0x12345678 " + "a" * 31) == "&lt;b&gt; 0x12345678 " + "a" * 31


def test_a_narrow_column_breaks_a_name_between_its_parts():
    assert html.breakable("planted.early_clobber<") == "planted.<wbr>early_<wbr>clobber&lt;"


def test_a_failure_states_its_first_night(base, tmp_path):
    def fails(r):
        return synthetic.failing(r) if (r.key.case, r.key.variant, r.key.target) == ("rcp", "asm.rn", "sm_80") else r

    nights = [
        dataclasses.replace(n, results=[fails(r) for r in n.results]) if i >= 3 else n
        for i, n in enumerate(synthetic.nights(base, 5, planted={}))
    ]
    words = Page(written(tmp_path, nights)).words
    assert f"since 2026-03-04 (revision {synthetic.digest('git', 3)[:12]})" in words
    assert "the oldest run here" not in words
    assert "the oldest run here" in Page(written(tmp_path, nights[3:])).words


def test_a_case_shows_the_cause_of_a_failure_once(base, tmp_path):
    cause = "all results are right with add.rn.f32 instead of add.rz.f32 on line 1"
    failing = synthetic.failing(base.results[0])
    words = f"{failing.key.case}::v[sm_80-emulator]: {cause}; 3 of 9 codes differ (1 ulp 3)"
    run = dataclasses.replace(base, results=[dataclasses.replace(failing, words=words), *base.results[1:]])
    text = html.write([run], tmp_path / "page.html").read_text(encoding="utf-8")
    [line] = [line for line in text.splitlines() if f"<strong>{cause}</strong>" in line]
    assert '<span class="detail">3 of 9 codes differ (1 ulp 3)</span>' in line


def test_a_map_shows_where_inputs_fail_in_a_figure_and_in_words(base, tmp_path):
    grid = synthetic.grid(lambda a, b: a >= 0x80 and b < 0x10)
    first = next(r for r in base.results if r.key.backend == "emulator" and r.key.variant == "asm.rn")
    failing = dataclasses.replace(synthetic.failing(first, different=2048), total=65536, grid=grid)
    run = dataclasses.replace(base, results=[failing if r is first else r for r in base.results])
    text = html.write([run], tmp_path / "page.html").read_text()
    assert "2,048 failing inputs, of 65,536 codes compared" in text
    assert 'a <code class="bits">0x80</code> to <code class="bits">0xff</code> <span class="value">(128 to 255)' in text
    assert "<b>2,048</b> failing inputs, of 2,048 pairs there" in text
    assert "and 2 smaller areas" in text
    assert text.count('href="#map--rcp--asm.rn"') == 2  # one in the first screen, one in the failure
    (image,) = re.findall(r"data:image/png;base64,([^\"]+)", text)
    lines = zlib.decompress(base64.b64decode(image)[41:-16])
    assert [lines[257 * a + 1 + b] > 0 for a, b in ((0x7F, 0), (0x80, 0), (0x80, 15), (0x80, 16))] == [0, 1, 1, 0]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "change",
    [
        {"counts": "nonsense"},
        {"shape": (256, 4096)},
        {"shape": (1 << 20, 1 << 20)},
        {"row_ticks": ()},
        {"row_ticks": (Bits("-0x1", ""),)},
        {"areas": (Area((Bits("0x" + "f" * 400, ""),) * 2, (Bits("0x0", ""),) * 2, 1),)},
    ],
)
def test_a_page_is_made_without_a_map_that_cannot_be_unpacked(base, tmp_path, change):
    broken = dataclasses.replace(synthetic.grid(lambda a, b: a == b), **change)
    run = dataclasses.replace(base, results=[dataclasses.replace(r, grid=broken) for r in base.results[:9]])
    assert 'class="failing"' not in html.write([run], tmp_path / "page.html").read_text()


def test_a_sweep_is_beside_its_copy_with_its_notes(base, tmp_path):
    swept = dataclasses.replace(
        base.results[0], total=1 << 32, sweep={"seconds": 0.024, "copy": 0.008}, notes=("4096 judged again",)
    )
    run = dataclasses.replace(base, results=[swept, *base.results[1:]])
    text = Page(written(tmp_path, [run])).words
    for words in ("4,294,967,296", "24 ms", "8 ms", "3.00 ×", "4096 judged again"):
        assert words in text


def test_packets_hold_every_result_and_the_code(base, page_of_base):
    content = packet(page_of_base, "rcp")
    assert len(content["results"]) == sum(r.key.case == "rcp" for r in base.results)
    strings, lines = content["strings"], content["lines"]
    variant, target, *_, ptx, sass, _ = content["listings"][0]
    assert strings[variant] in synthetic.VARIANTS
    assert strings[target] in synthetic.TARGETS
    texts = [lines[n] for n in ptx[0]]
    assert texts[0] == ".version 9.4"
    assert len(ptx[0]) == len(ptx[1]) == len(ptx[2])
    assert sass[0]


def test_listings_beyond_the_budget_are_dropped_with_a_remark(base, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "PACKET_BUDGET", 8 * 2000)
    text = written(tmp_path, [base])
    assert "For size, " in text
    assert len(packet(text, "rcp")["results"]) == sum(r.key.case == "rcp" for r in base.results)


@pytest.mark.slow
def test_the_whole_catalogue_fits_in_five_megabytes(tmp_path):
    assert len(written(tmp_path, [synthetic.catalogue()]).encode()) < 5_000_000


@pytest.mark.slow
def test_a_large_page_packs_the_cases_in_which_nothing_failed(tmp_path, monkeypatch):
    base = synthetic.catalogue(25, TARGETS, per_cell=2)
    results = [synthetic.failing(r) if r.key.case == "rcp" else r for r in base.results]
    runs = [dataclasses.replace(base, results=results)]
    book = [{"form": f"form.{n}", "status": "hardware"} for n in range(50)]
    text = written(tmp_path, runs, conformance=book)
    page = Page(text)
    assert len(FOLDED.findall(text)) == len(base.cases) - 1 + 1  # all cases but the failing one, and the ledger
    assert "form.49" not in page.words
    assert page.words.count("Packed, to keep this page small") == len(base.cases)
    links = {a["href"][1:] for _, a in page.elements if a.get("href", "").startswith("#")}
    assert links <= set(page.ids())
    monkeypatch.setattr(html, "CASES_SHOWN", 1000)
    monkeypatch.setattr(html, "LEDGER_SHOWN", 1000)
    html._environment.cache_clear()
    whole = Page(written(tmp_path, runs, conformance=book))
    html._environment.cache_clear()
    opened = Page(unfolded(text))
    assert opened.words == whole.words
    assert [e for e in opened.elements if e[0] != "details"] == [e for e in whole.elements if e[0] != "details"]


def test_packed_hostile_texts_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(html, "CASES_SHOWN", 0)
    pages = [
        Page(unfolded(written(tmp_path, [hostile.run(*kind, started="2026-03-01T00:00:00Z")])))
        for kind in ((), ("plain",))
    ]
    hostiles, tame = ([t for t, _ in p.elements if t not in ("span", "br", "wbr")] for p in pages)
    assert hostiles == tame
    assert "window.pwned=1" in pages[0].words


def test_names_in_a_packet_are_those_of_the_matrix(tmp_path):
    """The script finds a cell's results by the attributes of its row and column."""
    text = written(tmp_path, [hostile.run(started="2026-03-01T00:00:00Z")])
    elements = Page(text).elements
    rows = [a for tag, a in elements if tag == "tr" and "data-variant" in a]
    targets = {a["data-target"] for tag, a in elements if tag == "th" and a.get("data-target")}
    rows = [row for row in rows if row["data-case"] == rows[0]["data-case"]]
    content = packet(text, rows[0]["data-case"])
    names = [content["strings"][n] for row in content["results"] for n in row[:2]]
    assert set(names[::2]) == {row["data-variant"] for row in rows}
    assert set(names[1::2]) == targets
    listed = {content["strings"][n] for listing in content["listings"] for n in listing[:2]}
    assert listed <= set(names)


def test_invisible_characters_of_code_are_made_visible(tmp_path):
    content = packet(written(tmp_path, [hostile.run("a\u202eb\x1b", started="2026-03-01T00:00:00Z")]), "a\\u202eb\\x1b")
    assert "\\u202e" in str(content["lines"])
    assert not set("\u202e\x1b") & set(json.dumps(content, ensure_ascii=False))


def test_hostile_texts_change_nothing_about_the_pages_structure(tmp_path):
    runs = [hostile.run(started=f"2026-03-0{n}T00:00:00Z") for n in (1, 2, 3)]
    tame = [hostile.run("plain", started=f"2026-03-0{n}T00:00:00Z") for n in (1, 2, 3)]
    ledger = [{hostile.EVERYTHING: hostile.EVERYTHING, "form": hostile.EVERYTHING}]
    text = written(tmp_path, runs, conformance=ledger)
    page = Page(text)
    expected = Page(written(tmp_path, tame, conformance=[{"plain": "plain", "form": "plain"}]))
    assert page.stack == []
    # Colouring splits a text into spans that depend on its content, and a name has places to break; all other elements
    # are equal, one by one.
    assert [t for t, _ in page.elements if t not in ("span", "br", "wbr")] == [
        t for t, _ in expected.elements if t not in ("span", "br", "wbr")
    ]
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert set(attributes) <= {a for t, found in expected.elements if t == tag for a in found} | {"class", "style"}
        # An image was made by the page, from a map of failing inputs.
        inside = r"data:image/png;base64,[\w+/=]+" if tag == "image" else r"#.*"
        assert re.fullmatch(inside, attributes.get("href", "#"), re.S)
    assert "window.pwned=1" in page.words  # shown as text
    for words in ("Targets and variants that give different bits", "The merged runs disagree on", "Sweeps on a device"):
        assert words in page.words


def test_the_attack_would_be_detected():
    with pytest.raises(AssertionError, match="closes another element"):
        Page(f"<p>{hostile.EVERYTHING}</p>")


def test_the_policy_names_exactly_the_pages_two_scripts(page_of_base):
    text = page_of_base
    policy = next(a["content"] for t, a in Page(text).elements if a.get("http-equiv") == "Content-Security-Policy")
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.S)
    scripts += [inflated(s) for s in re.findall(r'id="library">([\w+/=]+)</script>', text)]
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts}
    assert len(scripts) == 2
    assert set(re.search(r"script-src ([^;]*);", policy)[1].split()) == hashes
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy


def test_json_in_a_script_element_cannot_end_it():
    assert not set("<>&") & set(str(html._json({"</script><!--": "<script>"})))
    assert json.loads(str(html._json({"</script>": "&<!--"}))) == {"</script>": "&<!--"}


@pytest.mark.parametrize(
    ("target", "name"), [("sm_75", "Turing"), ("sm_90a", "Hopper"), ("sm_121a", "Blackwell"), ("x", "")]
)
def test_generations(target, name):
    assert html.generation(target) == name


def test_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no run"):
        html.write([], tmp_path / "x.html")


def test_what_charts_need_is_kept_before_a_page_asks_for_it(tmp_path, monkeypatch):
    from ptxdiff.reports import charts

    monkeypatch.setattr(charts, "_bundle", lambda: "made")
    monkeypatch.setattr(charts, "_made", lambda: "{}")
    assert not charts.are_kept(tmp_path)
    charts.keep(tmp_path)
    assert charts.are_kept(tmp_path)
    monkeypatch.setattr(charts, "_bundle", lambda: "made again")
    assert charts.library(tmp_path) == "made"
    assert charts.specifications(tmp_path) == {}


def test_the_library_of_charts_is_kept_in_the_given_folder_if_it_is_writable(tmp_path, monkeypatch):
    from ptxdiff.reports import charts

    monkeypatch.setattr(charts, "_bundle", lambda: "made")
    assert charts.library(tmp_path / "kept") == "made"
    (file,) = (tmp_path / "kept").iterdir()
    assert file.read_text() == "made"
    file.write_text("kept")
    assert charts.library(tmp_path / "kept") == "kept"
    (tmp_path / "file").write_text("")
    assert charts.library(tmp_path / "file") == "made"
    # Another text of the module may build another library.
    (tmp_path / "charts.py").write_text(Path(charts.__file__).read_text() + "# edited")
    monkeypatch.setattr(charts, "__file__", str(tmp_path / "charts.py"))
    assert charts.library(tmp_path / "kept") == "made"


class Shelf(dict):
    """A store by inputs. `given` counts the packets read from it."""

    given = 0

    def get(self, *parts):
        found = dict.get(self, parts)
        self.given += found is not None and parts[0] not in (b"exceeds", b"template", b"ledger", b"codes", b"asm")
        return found

    def put(self, data, *parts):
        self[parts] = data


def test_kept_asm_is_that_of_its_text_and_kind(small, tmp_path):
    """The same text has other colours as PTX than as Python, and constraints are not kept."""
    from ptxdiff.reports.history import history

    name = small.results[0].key.case
    info = small.cases[name]
    shelf = Shelf()
    for kind, text, constraints in (
        ("asm", "mov.b32 $0, 1; // if", "=r,r"),
        ("asm", "mov.b32 $0, 2; // if", "=r,r"),
        ("asm", "mov.b32 $0, 2; // if", "=f,f"),
        ("plain", "mov.b32 $0, 2; // if", ""),
    ):
        changes = {"kind": kind, "texts": {"1": text}, "constraints": {"1": constraints}}
        variants = {n: dataclasses.replace(v, **changes) for n, v in info.variants.items()}
        run = dataclasses.replace(small, cases={**small.cases, name: dataclasses.replace(info, variants=variants)})
        plain = html.write([run], tmp_path / "plain.html").read_text(encoding="utf-8")
        for _ in range(2):
            assert (
                html.write_history(*history([run]), tmp_path / "kept.html", packets=shelf).read_text("utf-8") == plain
            )


def test_a_kept_packet_equals_a_new_one(small, tmp_path):
    """Kept packets give the same page, and a changed text, outcome or lexer uses no packet of another."""
    from ptxdiff.records import Text, escaping, text_hash
    from ptxdiff.reports import highlight, packing
    from ptxdiff.reports.history import history

    def page(shelf, run):
        given = shelf.given
        path = html.write_history(*history([run]), tmp_path / "page.html", packets=shelf)
        return path.read_text(encoding="utf-8"), shelf.given - given

    shelf, plain = Shelf(), html.write([small], tmp_path / "plain.html").read_text(encoding="utf-8")
    assert page(shelf, small) == (plain, 0)
    cases = len(small.cases)
    assert page(shelf, small) == (plain, cases)
    name = small.results[0].key.case
    used = {h for r in small.results if r.key.case == name for h in (r.ptx, r.sass)}
    edited = {h: small.texts[h].text.replace("ret;", "trap;") for h in used if h}
    assert any(text != small.texts[h].text for h, text in edited.items())
    names = {h: text_hash(text) for h, text in edited.items()}
    texts = {names[h]: Text(names[h], small.texts[h].kind, text) for h, text in edited.items()}
    results = [
        dataclasses.replace(r, ptx=names.get(r.ptx, r.ptx), sass=names.get(r.sass, r.sass)) if r.key.case == name else r
        for r in small.results
    ]
    changed = dataclasses.replace(small, results=results, texts={**small.texts, **texts})
    text, given = page(shelf, changed)
    assert given < cases
    assert text == html.write([changed], tmp_path / "plain.html").read_text(encoding="utf-8")
    failing = dataclasses.replace(small.results[0], words="another reason")
    text, given = page(shelf, dataclasses.replace(small, results=[failing, *small.results[1:]]))
    assert given == cases - 1
    assert all(Path(str(m.__file__)).read_bytes() in packing._code() for m in (packing, highlight, escaping))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_code", lambda: b"another lexer")
        assert page(shelf, small) == (plain, 0)


def test_kept_excerpts_of_compiled_asm_are_those_of_the_same_texts_and_code(base, tmp_path, monkeypatch):
    """With them no text is read; an edited text or another lexer uses none of another."""
    from ptxdiff.records import Text, text_hash
    from ptxdiff.reports import case_page, highlight

    shelf, found, name = Shelf(), view(base), base.results[0].key.case

    def became(run, kept):
        return case_page.case_page(view(run), name, (), html.history([run])[0], kept=kept).code

    plain = became(base, None)
    assert "rcp" in json.dumps([c.ptx for c in plain])
    listed = []
    monkeypatch.setattr(case_page, "listing", lambda *texts: listed.append(texts) or highlight.listing(*texts))
    for _ in range(2):
        found = became(base, shelf)
        assert [(c.variant, c.target, c.pack, c.more, c.lined_up) for c in found] == [
            (c.variant, c.target, c.pack, c.more, c.lined_up) for c in plain
        ]
        assert json.dumps([(c.ptx, c.sass) for c in found]) == json.dumps([(c.ptx, c.sass) for c in plain])
    assert len(listed) == len(plain)

    edited = {h: t.text.replace("rcp", "sqrt") for h, t in base.texts.items()}
    names = {h: text_hash(text) for h, text in edited.items()}
    results = [dataclasses.replace(r, ptx=names.get(r.ptx, ""), sass=names.get(r.sass, "")) for r in base.results]
    texts = {names[h]: Text(names[h], base.texts[h].kind, text) for h, text in edited.items()}
    changed = dataclasses.replace(base, results=results, texts=texts)
    assert json.dumps([c.ptx for c in became(changed, shelf)]) == json.dumps([c.ptx for c in became(changed, None)])
    assert "sqrt" in json.dumps([c.ptx for c in became(changed, shelf)])
    without = dataclasses.replace(base, texts={})
    assert became(without, shelf) == []
    before = len(listed)
    assert all(Path(str(m.__file__)).read_bytes() in case_page._code() for m in (case_page, highlight))
    monkeypatch.setattr(case_page, "_code", lambda: b"another lexer")
    became(base, shelf)
    assert len(listed) == before + len(plain)


def test_a_kept_section_on_the_ledger_is_that_of_the_same_file_and_code(small, tmp_path, monkeypatch):
    """A page with it equals a new one; an edited ledger, template or module of reports uses none of another."""
    from ptxdiff.reports.history import history

    shelf, book = Shelf(), tmp_path / "ledger.jsonl"

    def page(kept):
        past = history([small])
        return html.write_history(*past, tmp_path / "page.html", conformance=book, packets=kept).read_text("utf-8")

    def sections():
        return {parts: data for parts, data in shelf.items() if parts[0] == b"ledger"}

    book.write_text('{"form": "add.f32", "status": "hardware"}\n')
    plain = page(None)
    assert "add.f32" in plain
    assert page(shelf) == plain
    assert page(shelf) == plain
    (kept,) = sections()
    shelf.put(sections()[kept].replace(b"add.f32", b"from the store"), *kept)
    assert "from the store" in page(shelf)
    book.write_text('{"form": "add.f32", "status": "refuted"}\n')
    assert page(shelf) == page(None)
    monkeypatch.setattr(html, "_code", lambda: b"other code")
    book.write_text('{"form": "add.f32", "status": "hardware"}\n')
    assert page(shelf) == plain
    book.write_text("{")
    with pytest.raises(LedgerError):
        page(shelf)


def test_a_kept_template_is_that_of_the_same_text_and_code(small, tmp_path, monkeypatch):
    """jinja2 computes constants when it compiles a template, by our functions, so their code counts too."""
    from ptxdiff.reports.history import history

    def page(kept):
        html._environment.cache_clear()
        text = html.write_history(*history([small]), tmp_path / "page.html", packets=kept).read_text("utf-8")
        return text, {parts: data for parts, data in kept.items() if parts[0] == b"template"}

    shelf = Shelf()
    plain, made = page(shelf)
    assert len(made) > 5
    dumped = []
    monkeypatch.setattr(html._CompiledTemplates, "dump_bytecode", lambda self, bucket: dumped.append(bucket.key))
    assert page(shelf)[0] == plain
    assert not dumped
    damaged = Shelf({parts: data[:-40] for parts, data in made.items()})
    assert page(damaged)[0] == plain
    assert len(dumped) == len(made)
    dumped.clear()
    monkeypatch.setattr(html, "_code", lambda: b"other code")
    assert page(shelf)[0] == plain
    assert len(dumped) == len(made)
    html._environment.cache_clear()


def test_what_no_run_decides_is_made_ahead(small, tmp_path, monkeypatch):
    """Templates and the section on the ledger; the page is the same."""
    from ptxdiff.reports.history import history

    shelf, book = Shelf(), tmp_path / "ledger.jsonl"
    book.write_text('{"form": "add.f32", "status": "hardware"}\n')
    plain = html.write_history(*history([small]), tmp_path / "page.html", conformance=book).read_text("utf-8")
    html._environment.cache_clear()
    html.keep_ahead(tmp_path / "missing.jsonl", shelf)
    assert not any(parts[0] == b"ledger" for parts in shelf)
    html.keep_ahead(book, shelf)
    html._environment.cache_clear()
    compiled = []
    monkeypatch.setattr(html._CompiledTemplates, "dump_bytecode", lambda self, bucket: compiled.append(bucket.key))
    monkeypatch.setattr(html, "ledger", lambda source: pytest.fail("the section was made again"))
    written = html.write_history(*history([small]), tmp_path / "page.html", conformance=book, packets=shelf)
    assert written.read_text("utf-8") == plain
    assert compiled == []
    html._environment.cache_clear()


def test_the_code_of_reports_covers_every_template_and_module(monkeypatch):
    """An edit of any of them gives another digest."""
    read, folder = Path.read_bytes, Path(html.__file__).parent
    before = html._code.__wrapped__()
    for edited in ("html.py", "case_page.py", "templates/case.html.j2", "templates/macros.html.j2"):
        with monkeypatch.context() as patch:
            other = folder / edited
            patch.setattr(Path, "read_bytes", lambda path, other=other: read(path) + b"#" * (path == other))
            assert html._code.__wrapped__() != before
