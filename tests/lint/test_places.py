"""Equal findings of one file are one finding with several places."""

import json

from ptxdiff.lint import outputs
from ptxdiff.lint.files import lint_text
from ptxdiff.lint.fixes import repaired

STATEMENT = """__device__ void f{n}(float &a, float &b, float x) {{
  asm("neg.f32 %0, %2; add.f32 %1, %2, {one};" : "=f"(a), "=f"(b) : "f"(x));
}}
"""


def generated(*constants):
    return "".join(STATEMENT.format(n=n, one=one) for n, one in enumerate(constants))


def findings(text):
    return lint_text("generated.cu", text.encode()).findings


def test_equal_findings_are_one_with_all_places():
    (finding,) = findings(generated("1.0", "1.0", "1.0"))
    assert finding.rule == "missing-early-clobber"
    assert (finding.line, [line for line, _ in finding.places]) == (2, [5, 8])


def test_findings_with_other_words_stay_apart():
    assert [f.places for f in findings(generated("1.0", "2.0"))] == [(), ()]


def test_a_silenced_place_is_none_of_the_places():
    text = generated("1.0", "1.0", "1.0").replace("(x));", "(x));  // ptxdiff: ignore[missing-early-clobber]", 1)
    (finding,) = findings(text)
    assert (finding.line, [line for line, _ in finding.places]) == (5, [8])


def test_every_place_is_repaired():
    result = repaired("generated.cu", generated("1.0", "1.0", "1.0"))
    assert len(result.applied) == 3
    assert findings(result.after) == []


def test_text_and_json_list_the_places():
    report = lint_text("generated.cu", generated(*["1.0"] * 12).encode())
    assert "and 11 more places in this file: lines 5, 8," in outputs.text(report)
    (value,) = json.loads(outputs.as_json(report))["findings"]
    assert [p["line"] for p in value["places"]][:2] == [5, 8]
