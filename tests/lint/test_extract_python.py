"""Inline asm in Python files: the spellings of a call, strings built in many ways, and unresolved calls."""

import textwrap

import pytest

from ptxdiff.lint.extract import extract

CALL = 'tl.inline_asm_elementwise({asm}, "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)'


def found(source, path="file.py"):
    return extract(path, textwrap.dedent(source).encode())


def texts(source):
    extracted = found(source)
    assert extracted.notes == []
    return [s.asm for s in extracted.snippets]


def places_agree(extracted):
    """Assert that each character with a place is in the file at that place, or that its escape is."""
    text = extracted.file.text
    return all(
        at < 0 or text[at] == char or text[at] == "\\"
        for s in extracted.snippets
        for char, at in zip(s.asm, s.origin.offsets, strict=True)
    )


ASM = '"mov.b32 $0, $1;", "=r,r"'


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import triton.language as tl", f"tl.inline_asm_elementwise({ASM}, [x], tl.int32, True, 1)"),
        ("", f"tl.inline_asm_elementwise({ASM}, [x], pack=1, is_pure=True, dtype=tl.int32)"),
        ("from triton.language import inline_asm_elementwise as ia", f"ia({ASM}, [x], tl.int32, True, 1)"),
        (
            "from triton.experimental.gluon import language as gl",
            f"gl.inline_asm_elementwise({ASM}, [x], gl.int32, True, 1)",
        ),
        ("import helion.language as hl", f"hl.inline_asm_elementwise({ASM}, [x], torch.int32, True, 1)"),
        (
            "from torch._higher_order_ops.inline_asm_elementwise import inline_asm_elementwise",
            'inline_asm_elementwise(x, asm_str="mov.b32 $0, $1;", constraints="=r,r", dtype=torch.int32)',
        ),
        ("import triton.language as tl\nrun = tl.inline_asm_elementwise", f"run({ASM}, [x], tl.int32, True, 1)"),
        (
            "import functools\nimport triton.language as tl\n"
            "run = functools.partial(tl.inline_asm_elementwise, dtype=tl.int32, is_pure=True, pack=1)",
            f"run({ASM}, [x])",
        ),
    ],
    ids=["triton", "keywords", "alias", "gluon", "helion", "torch", "assigned", "partial"],
)  # fmt: skip
def test_a_call_by_any_name(imports, call):
    (snippet,) = found(f"{imports}\ny = {call}").snippets
    assert (snippet.asm, snippet.constraints) == ("mov.b32 $0, $1;", "=r,r")
    assert (snippet.convention, snippet.pure, snippet.pack) == ("triton", True, 1)
    assert (snippet.outputs, snippet.inputs) == (("int32",), (None,))


def test_an_operation_of_mlir():
    (snippet,) = found(
        """
        from cutlass._mlir.dialects import llvm as l
        def both(a, b):
            pair = ir.Type.parse("!llvm.struct<(f32, i32)>")
            args = [Float32(a).ir_value(), b]
            return l.inline_asm(pair, args, "mov.b32 $0, $2;", "=f,=r,f,r", has_side_effects=True)
        """
    ).snippets
    assert (snippet.convention, snippet.pure, snippet.pack) == ("llvm", False, 1)
    assert (snippet.outputs, snippet.inputs) == (("float32", "int32"), ("float32", None))
    assert snippet.function == "both"


def test_an_operation_of_mlir_is_pure_unless_it_says_otherwise():
    (snippet,) = found('y = llvm.inline_asm(T.f32(), [], "mov.b32 $0, 0;", "=f")').snippets
    assert snippet.pure is True


@pytest.mark.parametrize(
    ("before", "asm", "expected"),
    [
        ("", '"mov.b32 " "$0, $1;"', "mov.b32 $0, $1;"),
        ("", '("mov.b32 " + "$0, $1;")', "mov.b32 $0, $1;"),
        ("OP = 'mov'", 'f"{OP}.b32 $0, $1;"', "mov.b32 $0, $1;"),
        ("OP = 'mov'", 'f"{{ {OP}.b32 $0, $1; }}"', "{ mov.b32 $0, $1; }"),
        ("BITS = 16", 'f"mov.b{BITS * 2} $0, {BITS:#x};"', "mov.b32 $0, 0x10;"),
        ("OP = 'mov'", '"%s.b%d $0, %%laneid;" % (OP, 32)', "mov.b32 $0, %laneid;"),
        ("OP = 'mov'", '"{}.{t} $0, $1;".format(OP, t="b32")', "mov.b32 $0, $1;"),
        ("", '"\\n".join(f"mov.b32 $0, {i};" for i in range(2))', "mov.b32 $0, 0;\nmov.b32 $0, 1;"),
        ("ASM = tl.constexpr('mov.b32 $0, $1;')", "ASM", "mov.b32 $0, $1;"),
        ("ASM: tl.constexpr = 'mov.b32 $0, $1;'", "ASM.value", "mov.b32 $0, $1;"),
        ("T = {'a': ('b32', 1)}", 'f"mov.{T["a"][0]} $0, $1;"'.replace('"a"', "'a'"), "mov.b32 $0, $1;"),
        ("def op(kind, name='mov'):\n    return name + '.' + kind", "op('b32') + ' $0, $1;'", "mov.b32 $0, $1;"),
        ("lines = []\nlines.append('a.b32 $0;')\nlines += ['// end']", "'\\n'.join(lines)", "a.b32 $0;\n// end"),
        ("import textwrap", "textwrap.dedent('''\\\n    mov.b32 $0, $1;\n    ''')", "mov.b32 $0, $1;\n"),
        ("", 'r"mov.b32 $0, $1; // \\n"', "mov.b32 $0, $1; // \\n"),
        ("", '"mov.b32\\t$0, \\x241;"', "mov.b32\t$0, $1;"),
        ("text = ''\nfor i in range(2):\n    text += f'mov.b32 $0, {i};'", "text", "mov.b32 $0, 0;mov.b32 $0, 1;"),
        ("", '"mov.b32 $0, {};".replace("{}", "$1")', "mov.b32 $0, $1;"),
    ],
)  # fmt: skip
def test_a_string_is_resolved(before, asm, expected):
    source = f"import triton.language as tl\n{before}\ny = {CALL.format(asm=asm)}\n"
    extracted = found(source)
    assert [s.asm for s in extracted.snippets] == [expected], extracted.notes
    assert places_agree(extracted)


def test_a_parameter_is_resolved_at_the_calls():
    source = f"""
        def run(x, asm):
            return {CALL.format(asm="asm")}
        def both(x):
            return run(x, "neg.s32 $0, $1;") + run(x, asm="abs.s32 $0, $1;")
    """
    assert texts(source) == ["neg.s32 $0, $1;", "abs.s32 $0, $1;"]


def test_a_default_argument_is_resolved():
    source = f"def run(x, asm='neg.s32 $0, $1;'):\n    return {CALL.format(asm='asm')}"
    assert texts(source) == ["neg.s32 $0, $1;"]


def test_a_closure_is_resolved():
    source = f"""
        def make(op):
            def run(x):
                return {CALL.format(asm='f"{op}.s32 $0, $1;"')}
            return run
        neg, absolute = make("neg"), make("abs")
    """
    assert sorted(texts(source)) == ["abs.s32 $0, $1;", "neg.s32 $0, $1;"]


def test_texts_and_constraints_of_different_branches_are_not_combined():
    source = """
        def run(x, y, wide: tl.constexpr):
            if wide:
                constraints: tl.constexpr = "=l,l"
            else:
                constraints: tl.constexpr = "=r,r"
            note = 1 if y else 2
            asm: tl.constexpr = "mov.b64 $0, $1;" if wide else "mov.b32 $0, $1;"
            return tl.inline_asm_elementwise(asm, constraints, [x], dtype=tl.int32, is_pure=True, pack=1)
    """
    pairs = {(s.asm, s.constraints) for s in found(source).snippets}
    assert pairs == {("mov.b64 $0, $1;", "=l,l"), ("mov.b32 $0, $1;", "=r,r")}


def test_a_table_is_read_by_one_key_for_text_and_constraints():
    source = """
        ASM = {"a": "mov.b32 $0, $1;", "b": "mov.b64 $0, $1;"}
        CONSTRAINTS = {"a": "=r,r", "b": "=l,l"}
        def run(x, kind: tl.constexpr):
            return tl.inline_asm_elementwise(ASM[kind], CONSTRAINTS[kind], [x], dtype=tl.int32, is_pure=True, pack=1)
    """
    pairs = {(s.asm, s.constraints) for s in found(source).snippets}
    assert pairs == {("mov.b32 $0, $1;", "=r,r"), ("mov.b64 $0, $1;", "=l,l")}


def test_known_types_of_arguments():
    source = """
        def run(x, y):
            a = x.to(tl.float16)
            b = tl.cast(y, tl.bfloat16)
            return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r,r", [a, b, 3], dtype=(tl.float16, tl.uint8),
                                             is_pure=flag, pack=2)
    """
    (snippet,) = found(source).snippets
    assert snippet.inputs == ("float16", "bfloat16", "int32")
    assert (snippet.outputs, snippet.pack, snippet.pure) == (("float16", "uint8"), 2, None)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (f"def run(x, asm):\n    return {CALL.format(asm='asm')}", "the parameter asm of run"),
        (f"from elsewhere import ASM\ny = {CALL.format(asm='ASM')}", "no string"),
        (f"import os\ny = {CALL.format(asm='os.environ[str(1)]')}", "the element"),
        (f"def f(x):\n    t = ''\n    while x:\n        t += 'a'\n    return {CALL.format(asm='t')}", "number of runs"),
    ],
)  # fmt: skip
def test_an_unresolved_call_is_noted(source, words):
    extracted = found(source)
    assert extracted.snippets == []
    (note,) = extracted.notes
    assert words in note.words
    assert note.line >= 1


def test_no_code_of_the_file_is_run(tmp_path):
    witness = tmp_path / "ran"
    assert texts(f"open({str(witness)!r}, 'w')\ny = {CALL.format(asm='`mov.b32 $0, $1;`'.replace('`', chr(34)))}")
    assert not witness.exists()


@pytest.mark.parametrize("constraints", ["=v,v", "=&v,s", "=r,~{dirflag}"])
def test_asm_of_other_machines_is_ignored_and_noted(constraints):
    extracted = found(f'y = tl.inline_asm_elementwise("mov $0, $1", "{constraints}", [x], tl.int32, True, 1)')
    assert extracted.snippets == []
    assert extracted.notes == []
    assert "asm of a" in extracted.skipped[0].words


@pytest.mark.parametrize("source", ["def f(:\n inline_asm", "\0 inline_asm", "inline_asm = " + "(" * 500])
def test_a_file_that_is_not_python_is_unreadable(source):
    assert "no source of Python" in found(source).unreadable.words


def test_a_file_without_the_words_is_not_parsed():
    assert extract("file.py", b"def f(:") is None


def test_places_behind_escapes_other_letters_and_formatted_values():
    source = (
        "# \N{GREEK SMALL LETTER ALPHA}\N{GREEK SMALL LETTER BETA}\nOP = 'neg'\ny = tl.inline_asm_elementwise(\n"
        "    '// \N{GREEK SMALL LETTER ALPHA}\\n' f'{OP}.s32 \\t$0, {{$1}};'\n"
        "    \"// end\", '=r,r', [x], tl.int32, True, 1)\n"
    )
    extracted = found(source)
    (snippet,) = extracted.snippets
    assert snippet.asm == "// \N{GREEK SMALL LETTER ALPHA}\nneg.s32 \t$0, {$1};// end"
    assert places_agree(extracted)
    assert snippet.origin.position(snippet.asm.index("$0")) == (4, source.split("\n")[3].index("$0") + 1)
    assert snippet.origin.position(snippet.asm.index("neg"))[0] == 2


def test_extraction_of_a_thousand_branches_ends():
    body = "\n".join(f"    if flag{i}:\n        asm = asm + 'neg.s32 $0, $1;'" for i in range(1000))
    extracted = found(f"def run(x):\n    asm = ''\n{body}\n    return {CALL.format(asm='asm')}")
    assert "paths" in extracted.notes[-1].words or "too long" in extracted.notes[-1].words
