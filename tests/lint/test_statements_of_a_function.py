"""nvcc puts the asm statements of a function into one scope of PTX: what an earlier one declares, a later one reads."""

import pytest

from ptxdiff.lint.files import lint_text


def findings(*statements, after="", name="f"):
    body = "\n  ".join(statements)
    text = f"__device__ void {name}(int &y, int x) {{\n  {body}\n}}\n{after}"
    return [(f.rule, f.severity, f.line) for f in lint_text("file.cu", text.encode()).findings if f.severity != "note"]


DECLARE = 'asm(".reg .pred p;");'
SET = 'asm("setp.ne.s32 p, %0, 0;" :: "r"(x));'
USE = 'asm("@p mov.s32 %0, 1;" : "+r"(y));'


def test_a_declaration_of_an_earlier_statement_is_visible():
    assert findings(DECLARE, SET, USE) == [("declaration-outside-braces", "warning", 2)]
    assert findings(DECLARE.replace(".reg .pred", ".reg.pred"), SET, USE) == findings(DECLARE, SET, USE)


def test_a_range_of_an_earlier_statement_is_visible_up_to_its_count():
    names = [rule for rule, _, _ in findings('asm(".reg .pred p<2>;");', SET.replace(" p,", " p1,"))]
    assert names == ["declaration-outside-braces"]
    assert "undeclared-register" in {r for r, _, _ in findings('asm(".reg .pred p<2>;");', SET.replace(" p,", " q1,"))}


@pytest.mark.parametrize(
    "statements",
    [
        (SET, DECLARE, USE),  # declared too late
        ('asm("{ .reg .pred p; }");', SET, USE),  # declared in braces that are closed
        (DECLARE.replace(" p;", " q;"), SET),
    ],
)
def test_what_no_earlier_statement_declares_is_undeclared(statements):
    assert "undeclared-register" in {rule for rule, _, _ in findings(*statements)}


def test_a_declaration_of_another_function_is_not_visible():
    other = f"__device__ void g(int &y, int x) {{ {SET} {USE} }}"
    assert ("undeclared-register", "error", 4) in findings(DECLARE, after=other)


@pytest.mark.parametrize("name", ["f", "operator+=", "operator()", "operator<<="])
def test_braces_may_span_the_statements_of_a_function(name):
    statements = ('asm("{ .reg .pred p;");', SET, USE, 'asm("}");')
    assert findings(*statements, name=name) == []
    assert findings(*statements[:-1], name=name)[0][:2] == ("unbalanced-braces", "error")
    assert ("unbalanced-braces", "error", 6) in findings(*statements, 'asm("}");', name=name)


def test_no_repair_of_a_declaration_that_a_later_statement_reads():
    text = f"__device__ void f(int &y, int x) {{ {DECLARE}\n{SET}\n{USE} }}"
    (finding,) = lint_text("file.cu", text.encode()).findings
    assert (finding.rule, finding.fix) == ("declaration-outside-braces", None)
    assert "line 2" in finding.message


@pytest.mark.parametrize("use", ["mov.b32 %0, sum;", "ld.shared.b32 %0, [sum];", "add.s32 %0, sum, 1;"])
def test_a_register_of_another_block_is_undeclared_even_where_a_symbol_may_stand(use):
    first = 'asm("{ .reg .b32 sum; neg.s32 sum, %1; mov.b32 %0, sum; }" : "=r"(y) : "r"(x));'
    second = f'asm volatile("{use}" : "=r"(y) :: "memory");'
    assert ("undeclared-register", "error", 3) in findings(first, second)
    assert findings(first.replace("sum", "total"), second.replace("add.s32 %0, sum, 1", "mov.b32 %0, sum")) == []


def test_a_declaration_within_braces_of_another_statement_is_not_outside_braces():
    assert findings('asm("{");', DECLARE, SET, USE, 'asm("}");') == []


def test_a_syntax_error_in_a_statement_with_an_open_brace_is_found():
    wrong = 'asm("{ .reg .pred p; setp.ne.s32 p %0, 0;" :: "r"(x));'
    assert ("syntax", "error", 2) in findings(wrong, USE, 'asm("}");')
