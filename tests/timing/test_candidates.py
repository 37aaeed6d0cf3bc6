"""The arms of a timing: all use the same buffers; refusals have reasons; the twin, the copy and the empty kernel."""

import pytest
import torch

from ptxdiff.backends import gpu
from ptxdiff.model.load import load
from ptxdiff.running.assemblers import label_of, tritons_own
from ptxdiff.timing import candidates
from ptxdiff.timing.candidates import sized
from ptxdiff.timing.rounds import COPY, EMPTY, TWIN

SOURCE = '''
"""A move."""
from ptxdiff import Case, asm
from ptxdiff.references.formats import F32

case = Case(
    inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, pytorch=lambda x: x + 0,
    variants={
        "refused": asm("nonsense.b32 $0, $1;", pack=1),
        "mov": asm("mov.b32 $0, $1;", packs=(1, 4)),
        "or": asm("or.b32 $0, $1, $1;", pack=1),
    },
)
none = Case(inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, variants={"a": asm("nonsense $0;", pack=1)})
'''


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "DEVICE", "cpu")
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # PyTorch's compiler is not tested here
    path = tmp_path / "moves.py"
    path.write_text(SOURCE)
    return load(path)


@pytest.fixture
def prepared(monkeypatch):
    """Records the pointers with which each launch was made."""
    found = []

    def prepare(job, launch, pointers):
        found.append({name: tensor.data_ptr() for name, tensor in pointers.items()})
        return lambda: job.variant_name

    monkeypatch.setattr(gpu, "prepared", prepare)
    return found


def test_all_variants_run_on_the_same_buffers(loaded, prepared):
    size = sized(loaded[0].case, 1 << 12)
    made = candidates.arms_of(loaded[0], "sm_90a", size)
    assert list(made.launches) == ["mov", "or", candidates.PYTORCH, TWIN, COPY, EMPTY]
    assert prepared[0] == prepared[1]
    assert made.launches[TWIN] is made.launches["mov"]
    assert [made.setups[n].pack for n in ("mov", "or", candidates.PYTORCH)] == [4, 1, 1]
    assert made.ptxas == dict.fromkeys(("mov", "or"), label_of(None, "gpu", "sm_90a", ""))
    (note,) = made.notes
    assert note.startswith("refused: error: ")


def test_a_chosen_assembler_assembles_all_variants(loaded, prepared, monkeypatch):
    """The harness does not assemble PyTorch's kernels, so they are compared only with Triton's own assembler."""
    lowest = tritons_own("sm_90a", level=0)
    size = sized(loaded[0].case, 1 << 12)
    monkeypatch.setattr(gpu, "unlaunched", lambda launch, target: "")
    made = candidates.arms_of(loaded[0], "sm_90a", size, (), lowest)
    assert list(made.launches) == ["mov", "or", TWIN, COPY, EMPTY]
    assert set(made.ptxas.values()) == {lowest.label}
    assert {s.assembler for s in made.setups.values()} == {lowest}
    monkeypatch.setattr(gpu, "unlaunched", lambda launch, target: "not by the driver API")
    with pytest.raises(ValueError, match="mov: not by the driver API"):
        candidates.arms_of(loaded[0], "sm_90a", size, (), lowest)


def test_the_copy_reads_and_writes_as_many_bytes_in_all(loaded, prepared):
    size = sized(loaded[0].case, 1 << 12)
    target = candidates.arms_of(loaded[0], "sm_90a", size).launches[COPY]()
    assert 2 * target.numel() == size.bytes == 8 << 12


def test_pytorch_gets_tensors_of_the_types_it_computes_in(loaded, prepared):
    size = sized(loaded[0].case, 1 << 12)
    found = candidates.arms_of(loaded[0], "sm_90a", size).launches[candidates.PYTORCH]()
    assert found.dtype == torch.float32
    assert found.isfinite().all()


def test_chosen_variants_are_timed_without_pytorch(loaded, prepared):
    size = sized(loaded[0].case, 1 << 12)
    assert list(candidates.arms_of(loaded[0], "sm_90a", size, ("or",)).launches) == ["or", TWIN, COPY, EMPTY]


def test_an_expression_that_pytorch_cannot_compile_is_noted(loaded, prepared, monkeypatch):
    def broken(function, **options):
        raise RuntimeError("inductor found\nno compiler")

    monkeypatch.setattr(torch, "compile", broken)
    made = candidates.arms_of(loaded[0], "sm_90a", sized(loaded[0].case, 1 << 12))
    assert candidates.PYTORCH not in made.launches
    assert made.notes[1] == "torch.compile: RuntimeError: inductor found no compiler"


def test_a_case_without_a_variant_that_builds_is_refused_with_the_reason(loaded, prepared):
    with pytest.raises(ValueError, match="a: error: "):
        candidates.arms_of(loaded[1], "sm_90a", sized(loaded[1].case, 1 << 12))


IN_PLACE = '''
"""A sum in place."""
import triton
import triton.language as tl
from ptxdiff import Case, kernel
from ptxdiff.references.formats import F32

@triton.jit
def add(x, d, n):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(x + i, tl.load(x + i, mask=i < n) + tl.load(d + i, mask=i < n), mask=i < n)

case = Case(
    inputs={"x": F32["n"], "d": F32["n"]}, outputs={"x": F32["n"]}, reference=lambda x, d: x, sizes=[{"n": 64}],
    pytorch=lambda x, d: x.add_(d),
    variants={"one": kernel(add, grid="ceil(n/64)"), "two": kernel(add, grid="ceil(n/64)", num_warps=1)},
)
'''


def test_launches_in_place_start_from_the_same_values(tmp_path, monkeypatch):
    """Each launch of a variant, and of PyTorch's own update in place, adds to the tensor's initial value."""
    monkeypatch.setattr(gpu, "DEVICE", "cpu")
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(gpu, "prepared", lambda job, launch, p: lambda: p["x"].add_(p["d"]).clone())
    path = tmp_path / "sums.py"
    path.write_text(IN_PLACE)
    (loaded,) = load(path)
    made = candidates.arms_of(loaded, "sm_90a", sized(loaded.case, 1 << 10))
    found = []
    for name in ("one", "two", "one", candidates.PYTORCH, candidates.PYTORCH, TWIN):
        made.launches[name].restore()
        found.append(made.launches[name]().clone())
    assert all(torch.equal(found[0], other) for other in found)
    assert not torch.equal(found[0], made.launches["one"]())
    assert sized(loaded.case, 1 << 10).bytes == 3 * 4 << 10
