"""Extraction from C++ and CUDA files: asm statements and nothing else."""

import pytest

from ptxdiff.lint.extract import extract
from ptxdiff.lint.files import lint_text


def found(source, path="file.cu"):
    return extract(path, source.encode())


def test_a_statement_with_all_its_parts():
    (snippet,) = found(
        """
        __device__ __forceinline__ unsigned f(unsigned x, float y) {
          unsigned z;  // asm("no");
          asm volatile("{\\n\\t"  /* asm("no") */
                       ".reg .b32 t;\\n\\t"
                       "mov.b32 %0, %%laneid;\\n}"
                       : "=r"(z), "+f"(g(y, ")")) : "r"(x ? (unsigned)f(x, 1) : 2), "n"(3) : "memory");
          return z;
        }
        """
    ).snippets
    assert snippet.asm == "{\n\t.reg .b32 t;\n\tmov.b32 %0, %%laneid;\n}"
    assert snippet.constraints == "=r,+f,r,n,~{memory}"
    assert (snippet.convention, snippet.pure, snippet.pack, snippet.function) == ("cuda", False, 1, "f")
    assert (snippet.outputs, snippet.inputs) == ((None, None), (None, None))
    assert snippet.origin.position(snippet.asm.index("%0"))[0] == 6


@pytest.mark.parametrize(
    ("statement", "pure"),
    [
        ('asm("mov.b32 %0, 1;" : "=r"(x));', True),
        ('asm volatile("mov.b32 %0, 1;" : "=r"(x));', False),
        ('__asm__ __volatile__("mov.b32 %0, 1;" : "=r"(x));', False),
        ('asm("membar.gl;");', False),
    ],
)
def test_purity(statement, pure):
    (snippet,) = found(statement).snippets
    assert snippet.pure is pure


@pytest.mark.parametrize(
    ("source", "asm"),
    [
        ('asm(R"(mov.b32 %0, "1";\n)" : "=r"(x));', 'mov.b32 %0, "1";\n'),
        ('asm(R"XX(mov.b32 %0, )";)XX" : "=r"(x));', 'mov.b32 %0, )";'),
        ('#define OP "mov.b32 "\nasm(OP "%0, 1;" : "=r"(x));', "mov.b32 %0, 1;"),
        ('#define OP "mov.b32 " \\\n  "%0, "\nasm(OP "1;" : "=r"(x));', "mov.b32 %0, 1;"),
        ('asm("mov.b32 \\x250, 1;" :: "r"(x));', "mov.b32 %0, 1;"),
        ('#define GET(x) asm volatile( \\\n  "mov.b32 %0, 1;" \\\n : "=r"(x))', "mov.b32 %0, 1;"),
    ],
)
def test_text(source, asm):
    extracted = found(source)
    assert [s.asm for s in extracted.snippets] == [asm], extracted.notes
    (snippet,) = extracted.snippets
    for char, at in zip(asm, snippet.origin.offsets, strict=True):
        assert source[at] in (char, "\\")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("a.cu", 'asm volatile("" ::: "memory");'),
        ("a.cu", 'extern int x asm("x_renamed");'),
        ("a.cu", 'const char* s = "asm(\\"mov.b32 %0, 1;\\")";'),
        ("a.cu", '#define asm_volatile(x) x\nint asm_ = 1;'),
    ],
)  # fmt: skip
def test_asm_that_is_no_ptx_is_ignored(path, source):
    extracted = found(source, path)
    assert extracted is None or (extracted.snippets, extracted.notes, extracted.skipped) == ([], [], [])


@pytest.mark.parametrize(
    ("path", "source", "machine"),
    [
        ("a.cc", 'asm volatile("mov %1, %0" : "=r"(x) : "r"(y));', "no instruction of PTX"),
        ("a.h", 'asm volatile("lock; cmpxchg %%eax, %0;" : "=a"(x) : "r"(y));', "an x86 CPU"),
        ("a.h", 'asm volatile("rdtsc" : "=a"(lo), "=d"(hi));', "an x86 CPU"),
        ("a.h", 'asm volatile("pause");', "an x86 CPU"),
        ("a.h", 'asm("vaddps %%ymm0, %%ymm1, %%ymm2;" : "=r"(x) :: "cc");', "an x86 CPU"),
        ("a.cpp", "__asm { mov eax, 1 }", "an x86 CPU"),
        ("a.h", 'asm volatile("dmb ish" ::: "memory");', "an Arm CPU"),
        ("a.h", 'asm("fmla %0.4s, v1.4s, v2.s[0];" : "+w"(x));', "an Arm CPU"),
        ("a.h", 'asm("vadd.f32 q0, q1, q2;" : "+w"(x));', "another CPU"),
        ("a.h", 'asm volatile("fence.i" ::: "memory");', "another CPU"),
        ("a.cu", 'asm volatile("s_waitcnt vmcnt(0)" ::: "memory");', "an AMD GPU"),
        ("a.h", 'asm("foo.bar %0, %1;" : "=Y"(x) : "r"(y));', "no constraint '=Y'"),
        ("a.h", 'asm("foo.bar %0, %1;" : "=r"(x) : "r"(y) : "r5");', "no clobber 'r5'"),
    ],
)  # fmt: skip
def test_asm_of_another_machine_is_named(path, source, machine):
    extracted = found(source, path)
    assert (extracted.snippets, extracted.notes) == ([], [])
    assert machine in extracted.skipped[0].words


@pytest.mark.parametrize(
    "source",
    [
        'asm("{ .reg .f32 s_sum ; add.f32 s_sum , %1, %1; mov.f32 %0, s_sum ; }" : "=f"(x) : "f"(y));',
        'asm("mov.b32 %%eax, %1; mov.b32 %0, %%eax;" : "=r"(x) : "r"(y));',
        'asm("mov.b32 %0, %1" : "=r"(x) : "r"(y));',
        'asm("mov.b32 %0, %1;" : "=x"(x) : "r"(y));',
        'asm("add.cc.u32 %0, %1, 1;" : "=r"(x) : "r"(y) : "cc");',
        'asm volatile("cp.async.commit_group;");',
        'asm volatile("trap;");',
        'asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(y), "f"(z));',
        'asm("xor .b32 %0, %1, %2;" : "=r"(x) : "r"(y), "r"(z));',
        'asm volatile(".pragma \\"enable_smem_spilling\\";");',
        'asm volatile(".shared .align 1 .b8 room[4096];");',
        'asm("ex2.approx.ftz.f64 %0, %1;" : "=d"(x) : "d"(y));',
    ],
)
@pytest.mark.parametrize("path", ["a.h", "a.cu"])
def test_ptx_is_read_whatever_else_it_resembles(source, path):
    extracted = found(source, path)
    assert (len(extracted.snippets), extracted.skipped) == (1, [])


@pytest.mark.parametrize("asm", ["FADD R0, R1, R2;", "mvo %0, %1;", "pmevent 1;", "foo"])
def test_unknown_instructions_of_a_device_file_are_read(asm):
    """Only a header may be a CPU's: in a CUDA file, what is no known machine's is a misspelt instruction."""
    extracted = found(f'asm volatile("{asm}" :: "r"(x));')
    assert ([s.asm for s in extracted.snippets], extracted.skipped) == ([asm], [])


def texts(source, path="file.cu"):
    extracted = found(source, path)
    assert (extracted.notes, extracted.skipped) == ([], [])
    return [(s.asm, s.constraints, s.guards) for s in extracted.snippets]


def test_branches_inside_a_statement():
    source = """
asm("mov.b32 %0, "
#if __CUDA_ARCH__ >= 900
    "1;"
#elif defined(FAST)  // "x"
    "2;"
#else
    "3;"
#endif
    : "=r"(x));
"""
    over, under = "__CUDA_ARCH__ >= 900", "!(__CUDA_ARCH__ >= 900)"
    assert texts(source) == [
        ("mov.b32 %0, 1;", "=r", (over,)),
        ("mov.b32 %0, 2;", "=r", (under,)),
        ("mov.b32 %0, 3;", "=r", (under,)),
    ]


def test_equal_conditions_have_equal_values():
    """Operands and the text under one condition belong together, also if one of them is negated."""
    source = """
asm("mov.b32 %0, 1;"
#ifdef MORE
    "mov.b32 %1, 2;"
#endif
    : "=r"(x)
#if !defined(MORE)
    );
#else
    , "=r"(y));
#endif
"""
    assert texts(source) == [("mov.b32 %0, 1;mov.b32 %1, 2;", "=r,=r", ()), ("mov.b32 %0, 1;", "=r", ())]


@pytest.mark.parametrize(
    ("around", "inside", "count"),
    [
        ("1", "0", 1),
        ("defined(A)", "defined(A)", 1),
        ("defined A", "!defined(A)", 1),
        ("__CUDA_ARCH__ >= 900", "__CUDA_ARCH__ >= 800", 1),
        ("__CUDA_ARCH__ >= 800", "__CUDA_ARCH__ >= 900", 2),
        ("__CUDA_ARCH__ < 800", "(__CUDA_ARCH__ >= 900)", 1),
        ("defined(A)", "defined(B)", 2),
    ],
)
def test_branches_that_no_compiler_sees_are_left_out(around, inside, count):
    source = f'#if {around}\nasm("mov.b32 %0, 1;"\n#if {inside}\n"exit;"\n#endif\n: "=r"(x));\n#endif\n'
    assert len(texts(source)) == count


def test_a_statement_that_begins_within_a_branch():
    source = '#ifdef A\nasm volatile("mov.b32 %0, 1;"\n#else\nasm("mov.b32 %0, 2;"\n#endif\n : "=r"(x));\n'
    assert texts(source) == [("mov.b32 %0, 1;", "=r", ()), ("mov.b32 %0, 2;", "=r", ())]
    assert [s.pure for s in found(source).snippets] == [False, True]


def test_too_many_branches_are_named():
    inner = "".join(f'#ifdef A{n}\n"exit;"\n#endif\n' for n in range(9))
    (note,) = found(f'asm("mov.b32 %0, 1;"\n{inner}: "=r"(x));').notes
    assert "more than 64 combinations" in note.words


def test_directives_elsewhere_are_no_branches():
    source = '#define S(x) asm("mov.b32 %0, 1;" #x \\\n : "=r"(x))\nauto s = R"(\n#if A\n)"; asm("exit;");'
    extracted = found(source)
    assert [s.asm for s in extracted.snippets] == ["exit;"]
    assert [n.line for n in extracted.notes] == [1]


def test_names_of_operands():
    source = 'asm("add.f32 %[sum], %[a], %1; // %[b]" : [sum] "=f"(x) : [a] "f"(y[0]), [ b ] "n"(3));'
    (snippet,) = found(source).snippets
    assert (snippet.asm, snippet.constraints) == ("add.f32 %0, %1, %1; // %2", "=f,f,n")
    assert snippet.origin.position(snippet.asm.index("%1"))[1] == source.index("%[a]") + 1
    assert snippet.origin.position(snippet.asm.rindex("%1"))[1] == source.index("%1") + 1


@pytest.mark.parametrize(
    ("asm", "rules"),
    [
        ("add.f32 %[sum], %[a], %[b];", []),
        ("add.f32 %[sum], %[a], %[c];", ["syntax"]),
        ("add.f32 %[sum] %[a], %[b];", ["syntax"]),
        ("add.f32 %[sum], %[a], %[a];", ["operand-unused"]),
        ("add.f16 %[sum], %[a], %[b];", ["operand-type"]),
    ],
)
def test_mistakes_with_names_of_operands(asm, rules):
    source = f'asm("{asm}" : [sum] "=f"(x) : [a] "f"(y), [b] "f"(z));'
    assert sorted({f.rule for f in lint_text("a.cu", source.encode()).findings}) == rules


@pytest.mark.parametrize(
    ("branch", "rules"),
    [("add.f32 %0, %1, %2;", []), ("add.f32 %0, %1 %2;", ["syntax"])],
)
def test_mistakes_in_a_branch_are_found_once(branch, rules):
    source = (
        f'void f() {{\nasm(".reg .f32 t;"\n#ifdef A\n"{branch}"\n#else\n"sub.f32 %0, %1, %2;"\n#endif\n'
        ' "add.f32 t, %1, %2;" : "+f"(x) : "f"(y), "f"(z));\n}'
    )
    found = [f.rule for f in lint_text("a.cu", source.encode()).findings]
    assert [r for r in found if r != "declaration-outside-braces"] == rules
    assert found.count("declaration-outside-braces") <= 1


@pytest.mark.parametrize("piece", ["ELSEWHERE", "#type", "STR(f16)"])
def test_an_unknown_piece_is_noted(piece):
    extracted = found(f'asm("mov." {piece} " %0, %1;" : "=r"(x) : "r"(y));')
    assert extracted.snippets == []
    assert "not resolved" in extracted.notes[0].words


@pytest.mark.parametrize(
    "source", ['asm("mov.b32 %0, 1;" : "=r"(x)', 'asm("mov.b32', "asm volatile(", "/* asm(", "asm"]
)
def test_an_incomplete_file_is_extracted(source):
    found(source)
