"""Several cubins read by one call of nvdisasm: each part's text equals that of its cubin alone."""

import functools
import re
import subprocess

import pytest

from ptxdiff.sass.cubin import disassembled
from ptxdiff.triton import assemble as assembling
from ptxdiff.triton.assemble import Assembly, disassemble, disassemble_ahead, listing
from ptxdiff.triton.cubin import MOST, kernel_of, merged, split_text
from ptxdiff.triton.targets import assembler, tool
from tests.support.sampling import only

HEADER = ".version 8.6\n.target {}\n.address_size 64\n"
PARAMETERS = "(.param .u64 from, .param .u64 to)"
BEGIN = """
    .reg .b64 %p, %q; .reg .f32 %a, %b; .reg .pred %c; .reg .b32 %i;
    ld.param.u64 %p, [from]; ld.param.u64 %q, [to]; ld.global.f32 %a, [%p]; ld.global.f32 %b, [%p+4];
"""
STRAIGHT = "add.rn.f32 %a, %a, %b; st.global.f32 [%q], %a; ret;"
DIVISION = "div.rn.f32 %a, %a, %b; st.global.f32 [%q], %a; ret;"  # with a function inside: the slow path of division
LOOP = """
    mov.u32 %i, 0;
again: mul.rn.f32 %a, %a, %b; add.u32 %i, %i, 1; setp.gt.f32 %c, %a, 0f40000000; @%c bra again;
    setp.lt.u32 %c, %i, 7; @%c bra done; st.global.f32 [%q+4], %b;
done: st.global.f32 [%q], %a; ret;
"""


CALLED = ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n.global .b8 words[3] = {72, 105, 0};\n"
PRINTS = """
    { .param .b64 x; .param .b64 y; .param .b32 r; .reg .b64 %w; mov.u64 %w, words; cvta.global.u64 %w, %w;
      st.param.b64 [x], %w; st.param.b64 [y], 0; call (r), vprintf, (x, y); } ret;
"""


def cubin(body, target="sm_90a", name="elementwise_1d", folder=None, more=""):
    text = HEADER.format(target) + more + f".visible .entry {name}{PARAMETERS} {{{BEGIN}{body}}}\n"
    source, made = folder / "k.ptx", folder / "k.cubin"
    source.write_text(text)
    command = [assembler(target).path, "-lineinfo", f"--gpu-name={target}", str(source), "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return made.read_bytes()


@functools.cache
def alone(code):
    return assembling._disassemble(code, str(tool("nvdisasm")))


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", only(["sm_80", "sm_90a", "sm_100a"], ["sm_80", "sm_100a"]))
def test_cubins_read_together_give_the_same_text_as_alone(tmp_path, target):
    bodies = [(STRAIGHT, "elementwise_1d"), (DIVISION, "elementwise_1d"), (LOOP, "elementwise_1d"), (DIVISION, "rows")]
    codes = [cubin(body, target, name, tmp_path) for body, name in bodies]
    codes += 2 * [cubin(PRINTS, target, folder=tmp_path, more=CALLED)]
    kernels = [kernel_of(code) for code in codes]
    assert all(kernels)  # the function inside DIVISION is a weak symbol of ptxas 12.8, and a local one of 13.4
    found = dict.fromkeys(k.alike for k in kernels)
    groups = [[k for k in kernels if k.alike == first] for first in found]
    assert max(map(len, groups)) > 1
    for group in groups:
        texts = split_text(group, alone(merged(group)))
        assert texts == [alone(codes[kernels.index(kernel)]) for kernel in group]


def test_listing_returns_the_texts_that_were_made_ahead(tmp_path, monkeypatch):
    """They are returned also if the cache is turned off: then the texts stay in the process."""
    codes = [cubin(body, folder=tmp_path) for body in (STRAIGHT, LOOP)]
    expected = [alone(code) for code in codes]
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", "")
    real, called = assembling._disassemble, []
    monkeypatch.setattr(assembling, "_disassemble", lambda *given: called.append(given) or real(*given))
    disassemble_ahead(codes, str(tool("nvdisasm")))
    assert [listing(code, str(tool("nvdisasm"))) for code in codes] == expected
    assert len(called) == 1


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_readers_get_the_text_that_nvdisasm_gives_them_alone(tmp_path, target):
    """The assembler's text has PTX lines, that of machine code has encodings: one listing has both."""
    codes = [cubin(body, target, folder=tmp_path) for body in (STRAIGHT, DIVISION, LOOP)]
    for number, code in enumerate([*codes, cubin(PRINTS, target, folder=tmp_path, more=CALLED)]):
        file = tmp_path / f"{number}.cubin"
        file.write_bytes(code)

        def said(*options, file=file):
            command = [str(tool("nvdisasm")), "-c", "-ndf", *options, str(file)]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        in_one_column = re.sub(r"[ \t]+(/\* 0x\w{16} \*/)$", r" \1", said("-hex"), flags=re.M)
        assert disassemble(Assembly(code, {}), str(tool("nvdisasm"))).text == said("-gp")
        assert disassembled(code, tool("nvdisasm")) == in_one_column


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    kernels = [kernel_of(cubin(body, folder=folder)) for body in (STRAIGHT, LOOP)]
    return kernels, alone(merged(kernels))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: re.sub(r"^.*MOV.*\n|^.*FADD.*\n", "", text, count=1, flags=re.M),  # an instruction is lost
        lambda text: text[: text.index("//-", text.index(".text.K01"))],  # the symbols are lost
        lambda text: (
            text[: text.index("//-", text.index(".text.K00"))] + text[text.index("//--------------------- SYM") :]
        ),
        lambda text: text.replace(".text.K00", ".text.K77"),  # an unknown kernel
        lambda text: text.replace("K01", "K00"),  # two with the same name
        lambda text: text + "//--------------------- .text.another   -----\n",
        lambda text: "",
    ],
)
def test_an_unexpected_text_is_not_split(pair, spoil):
    kernels, text = pair
    assert split_text(kernels, text)
    assert split_text(kernels, spoil(text)) is None


def test_a_part_with_another_number_of_instructions_is_not_used(pair, tmp_path):
    """The number of its instructions shows it."""
    kernels, text = pair
    longer = kernel_of(cubin(DIVISION, folder=tmp_path))
    assert split_text([longer, kernels[1]], text) is None


def test_a_cubin_with_an_unexpected_part_is_read_alone(tmp_path, monkeypatch):
    codes = [cubin(body, folder=tmp_path) for body in (STRAIGHT, DIVISION)]
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))
    real, called = assembling._disassemble, []

    def planted(code, reader):
        called.append(code)
        return "nothing" if code not in codes else real(code, reader)

    monkeypatch.setattr(assembling, "_disassemble", planted)
    disassemble_ahead(codes, str(tool("nvdisasm")))
    assert "FADD" in disassemble(Assembly(codes[0], {}), str(tool("nvdisasm"))).opcodes
    assert called[1:] == codes[:1]


def test_a_cubin_with_other_than_one_kernel_is_read_alone(tmp_path):
    assert kernel_of(b"") is None
    assert kernel_of(b"\x7fELF\x02" + bytes(200)) is None
    good = cubin(STRAIGHT, folder=tmp_path)
    assert kernel_of(good)
    assert kernel_of(good[: len(good) // 2]) is None
    two = f".visible .entry other{PARAMETERS} {{{BEGIN}{STRAIGHT}}}\n"
    assert kernel_of(cubin(STRAIGHT, folder=tmp_path, more=two)) is None


def test_kernels_of_two_targets_are_not_put_into_one_file(pair, tmp_path):
    kernels, _ = pair
    other = kernel_of(cubin(STRAIGHT, "sm_80", folder=tmp_path))
    with pytest.raises(ValueError, match="cannot be in one file"):
        merged([kernels[0], other])
    with pytest.raises(ValueError, match="cannot be in one file"):
        merged([kernels[0]] * (MOST + 1))
