"""Extraction from C++ and CUDA files: asm statements and nothing else."""

import pytest

from harness.lint.extract import extract


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
        ("a.cc", 'asm volatile("mov %1, %0" : "=r"(x) : "r"(y));'),
        ("a.h", 'asm volatile("lock; cmpxchg %%eax, %0;" : "=a"(x) : "r"(y));'),
        ("a.h", 'asm volatile("fence.i" ::: "memory");'),
        ("a.h", 'asm("vaddps %%ymm0, %%ymm1, %%ymm2;" : "=r"(x) :: "cc");'),
        ("a.cu", 'asm volatile("s_waitcnt vmcnt(0)" ::: "memory");'),
        ("a.cu", 'asm volatile("" ::: "memory");'),
        ("a.cu", 'extern int x asm("x_renamed");'),
        ("a.cu", 'const char* s = "asm(\\"mov.b32 %0, 1;\\")";'),
        ("a.cu", '#define asm_volatile(x) x\nint asm_ = 1;'),
    ],
)  # fmt: skip
def test_asm_that_is_no_ptx_is_ignored(path, source):
    extracted = found(source, path)
    assert extracted is None or (extracted.snippets, extracted.notes) == ([], [])


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
