"""The plan: the setups and input sets with which a variant is run on one target, at a given effort.

Every input set is run in the plain setup of every pack, and sets of tuples at the pack that reads them. The other
axes (shape, alignment, num_warps, pack, context, fusion, placement) are varied on the edge set only. Full effort runs
every combination. Exhaustive effort, which is about inputs, runs pairwise combinations, and so does a GPU.

At quick effort the emulator and the assembler divide the rows among the case's targets: every pair of values is run on
one of them, and each target runs at least one row. Compiling takes most of a quick run, and a pair (such as pack 4 with
eight warps) seldom fails on one target alone. What an author's own code may get wrong is not divided, so that a run on
one target finds it. Every target runs:

- at every pack, shuffled inputs, chosen padding of a partial pack, and a loop: they reveal asm that mixes elements or
  loses one that it carries;
- both fusions of Triton functions, and of asm that ptxas may contract;
- Triton functions with one warp, which makes the packs of the asm that they call whole;
- every text that the author wrote for a pack, compiled;
- kernels in every shape and at each alignment, given PTX with each pointer misaligned alone, and at sizes beside the
  numbers of the code.

A target may still have no row in which a thread holds several packs, so that a name that a second copy of the asm
declares again stays hidden. Such names are found in the text instead (`ptxdiff.emulator.repeated_name`).

Machine code has a smaller plan at quick effort where `auto` chose its backend and not the user (`brief_plan`): each
machine code that the assembler makes on the target runs once on all edges, and the first one of each pack on the
constants and the words too; of a whole kernel, the smallest size with elements. A target for which the assembler makes
no code of all edges makes one more. Every row of it belongs to the whole plan.

The emulator runs asm without Triton's kernel around it where both must give the same bits: in the rows above, and on
every input set. It runs Triton's kernel around the asm on the edges, in the rows that the assembler compiles too.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ptxdiff.backends import BACKENDS
from ptxdiff.backends.snippet import may_share
from ptxdiff.inputs import InputSet, constant_sets, input_sets, stratified, word_sets
from ptxdiff.inputs.kernel_sets import sets_for
from ptxdiff.jobs import Setup, block_of
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.constants import constants_of
from ptxdiff.model.derive import asm_form, packs_of
from ptxdiff.model.packs import packs_read
from ptxdiff.model.policies import policies
from ptxdiff.model.targets import KNOWN, TargetSet, capability
from ptxdiff.model.variants import AsmVariant, CaseError, ComparedPtx, LaunchedVariant, PtxVariant, Variant
from ptxdiff.records import Key
from ptxdiff.references.formats import Scalar, Shaped
from ptxdiff.sweep import LARGE
from ptxdiff.triton.launch import grid_of


def pairwise(axes: Sequence[Sequence[object]]) -> list[tuple[object, ...]]:
    """Rows in which every pair of values of any two axes occurs, chosen greedily; the first row has each first value.

    Deterministic: the same axes give the same rows.
    """
    places = _places(tuple(map(len, axes)))
    return [tuple(axis[k] for axis, k in zip(axes, row, strict=True)) for row in places]


def share(axes: Sequence[Sequence[object]], part: int, parts: int, least: int = 1) -> list[tuple[object, ...]]:
    """The rows of part number `part` out of `parts`, at least `least`; all parts together contain every pair of values.

    For an axis that is costly and matters little, such as the target: each pair is run on at least one target.
    Deterministic: a part has the same rows, whichever other parts are run.
    """
    rows = pairwise(axes)
    count = min(len(rows), max(least, -(-len(rows) // parts)))
    return [rows[(part * count + k) % len(rows)] for k in range(count)]


@functools.cache
def _places(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The rows for axes of these sizes, as indices on the axes."""
    wanted = {
        (i, a, j, b)
        for i, j in itertools.combinations(range(len(sizes)), 2)
        for a in range(sizes[i])
        for b in range(sizes[j])
    }
    row = (0,) * len(sizes)
    rows = []
    while True:
        rows.append(row)
        wanted -= {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(sizes)), 2)}
        if not wanted:
            break
        row = _next_row(sizes, wanted)
    return tuple((k,) for k in range(sizes[0])) if len(sizes) == 1 else tuple(rows)


def _next_row(sizes: Sequence[int], wanted: set[tuple[int, int, int, int]]) -> tuple[int, ...]:
    """A row with the smallest pair still wanted, and on each other axis the value that covers most wanted pairs."""
    i, a, j, b = min(wanted)
    chosen = {i: a, j: b}
    for axis in range(len(sizes)):
        if axis in chosen:
            continue

        def gain(value: int, axis: int = axis) -> int:
            return sum(_pair(axis, value, k, v) in wanted for k, v in chosen.items())

        chosen[axis] = max(range(sizes[axis]), key=lambda value: (gain(value), -value))
    return tuple(chosen[k] for k in range(len(sizes)))


def _pair(i: int, a: int, j: int, b: int) -> tuple[int, int, int, int]:
    return (i, a, j, b) if i < j else (j, b, i, a)


LARGEST = 1 << 20
"""The most elements of a launch; the emulator runs as many in a third of a second."""
MANY = (1 << 18) + 1
"""Elements of the launch with many: more than 16 bits count, and 257 programs of 1024."""
_NUMBERS = 32
"""Numbers of the code that are used, the largest first."""


def sizes_beside(variant: LaunchedVariant) -> tuple[int, ...]:
    """The sizes, in increasing order: each number of the code that is a size, the next ones, and a large one.

    The large one has the program of every number for which `LARGEST` elements suffice, and two programs more.
    """
    numbers = sorted({n for n in constants_of(variant) if isinstance(n, int) and 1 < n <= LARGEST})
    beside = {n + k for n in numbers[-_NUMBERS:] for k in (-1, 0, 1)}
    launched = variant.together if isinstance(variant, ComparedPtx) else (variant,)
    large = max(_large(v, numbers) for v in launched)
    return tuple(sorted({n for n in beside if n <= LARGEST} | {large}))


def _large(variant: LaunchedVariant, numbers: list[int]) -> int:
    """The smallest size from `MANY` on with the programs of all these numbers that it can have."""
    most = _programs(variant, LARGEST)
    wanted = max((n + 2 for n in numbers if n + 2 <= most), default=0)
    low, high = MANY, LARGEST
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _programs(variant, middle) >= wanted else (middle + 1, high)
    return low


def _programs(variant: LaunchedVariant, size: int) -> int:
    """The programs along the widest dimension of the grid; 0 if it cannot be told for this size."""
    try:
        return max(grid_of(variant, {"n": size}), default=0)
    except Exception:  # the grid may be a function of the user; the run at this size reports the error
        return 0


LOOP_STEPS = 3
_PRIME = 1009

# By name, because they depend on the block: one, one below and one above a block, a prime, several blocks, and two
# dimensions with a ragged row. The compiler tells sizes apart as one, divisible by 16, or neither; the other shapes
# exercise masks and partial packs.
_SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "one": lambda block: (1,),
    "below": lambda block: (block - 1,),
    "above": lambda block: (block + 1,),
    "prime": lambda block: (_PRIME,),
    "blocks": lambda block: (4 * block,),
    "rows": lambda block: (7, 129),
}
_RAGGED = ("below", "above", "prime")
_SHUFFLE_SEED, _PADDING_SEED = 7, 11


@dataclass(frozen=True)
class WorkItem:
    """One thing to run and judge: a setup and an input set.

    shuffled: a seed that permutes the set's inputs, so that other elements share an asm invocation; None keeps their
    order.
    """

    setup: Setup
    input_set: str
    shuffled: int | None = None


def plan(case: Case, variant: Variant, backend: str, effort: str, target: str) -> list[WorkItem]:
    """The work of one test item, in the order in which it is run: the plain setup first."""
    if not case.elementwise:
        assert isinstance(variant, LaunchedVariant)
        return list(_kernel_items(case, variant, backend, effort))
    items = _elementwise_items(case, variant, backend, effort, target)
    if BACKENDS[backend].brief and effort == "quick":
        items = _unique([*items, *_brief_items(case, variant, backend, target)])
    if not isinstance(variant, AsmVariant) or not BACKENDS[backend].asm_alone or not variant.reads_padding:
        return items
    counts = {s.name: s.count for s in sets_of(case, backend, effort, variant)}
    return _unique([_filled(case, variant, item, counts[item.input_set]) for item in items])


def brief_plan(case: Case, variant: Variant, backend: str, target: str) -> list[WorkItem]:
    """The part of a quick plan that a backend runs if `auto` chose it. The whole plan where no part can be chosen."""
    if case.elementwise:
        items = _brief_items(case, variant, backend, target)
    else:
        assert isinstance(variant, LaunchedVariant)
        items = _brief_kernel_items(case, variant, backend)
    return items or plan(case, variant, backend, "quick", target)


def brief_setups(case: Case, variant: Variant, target: str) -> list[Setup]:
    """A setup for each kernel that `brief_plan` runs of an elementwise variant: none of its inputs have to be made.

    Their shapes are shorter than those of the plan, and of the same classes: Triton makes the same code for them.
    """
    packs = packs_of(case, variant) if isinstance(variant, AsmVariant) else (1,)
    return list(_each_code(_brief_rows(case, variant, packs, target)))


def _brief_rows(case: Case, variant: Variant, packs: Sequence[int], target: str) -> list[Setup]:
    """The setups that are compiled, and one more if none of them can hold a set."""
    setups = list(_compiled(case, variant, packs, _quick_part(case, variant, packs, target)))
    if not any(_holds_a_set(setup) for setup in setups):
        setups.append(replace(setups[0], shape=_SHAPES[_RAGGED[0]](setups[0].block)))
    return setups


def _each_code(setups: Iterable[Setup]) -> Iterator[Setup]:
    """The first setup for each machine code that Triton makes."""
    codes: set[tuple[object, ...]] = set()
    for setup in setups:
        n = _length(setup)
        code = (setup.pack, setup.fusion, setup.num_warps, setup.alignment, n == 1, n % 16 == 0, len(setup.shape))
        if code not in codes:
            codes.add(code)
            yield setup


def _length(setup: Setup) -> int:
    return setup.shape[0] if len(setup.shape) == 1 else 0


def _brief_items(case: Case, variant: Variant, backend: str, target: str) -> list[WorkItem]:
    """Runs of each machine code that the assembler makes of a variant at quick effort on a target.

    The shapes hold all inputs of a set and are those for which Triton makes the same code: it tells sizes apart as one,
    divisible by 16, or neither. A target whose part has only rows of one element, or of two dimensions, runs one code
    more, else it would pass on hardly any input.
    """
    packs = packs_of(case, variant) if isinstance(variant, AsmVariant) else (1,)
    counts = {s.name: s.count for s in _element_sets(case, backend, "quick", variant)}
    edges = _edge_like(list(counts))
    if edges is None:
        return []
    items: list[WorkItem] = []
    seen: set[int] = set()
    for setup in _each_code(_brief_rows(case, variant, packs, target)):
        items.append(WorkItem(_lengthened(setup, counts[edges]), edges))
        if setup.pack in seen or _length(setup) in (0, 1):
            continue
        seen.add(setup.pack)
        more = {name: count for name, count in counts.items() if name.startswith("constants")}
        if isinstance(variant, AsmVariant):
            more |= {s.name: s.count for s in word_sets(case, "quick", variant, setup.pack)}
        items += [WorkItem(_lengthened(setup, count), name) for name, count in more.items()]
    return _unique(items)


def _holds_a_set(setup: Setup) -> bool:
    """Whether the setup's shape can be lengthened to all inputs of a set without other code, or has no bound."""
    return not setup.shape or (len(setup.shape) == 1 and setup.shape[0] > 1)


def _lengthened(setup: Setup, count: int) -> Setup:
    """The setup with a shape for at least `count` inputs, for which Triton compiles the same kernel."""
    if len(setup.shape) != 1 or setup.shape == (1,):
        return setup
    size = -(-max(count, 2) // 16) * 16
    return replace(setup, shape=(size if setup.shape[0] % 16 == 0 else max(count, 2) + (count % 16 == 0),))


def _brief_kernel_items(case: Case, variant: LaunchedVariant, backend: str) -> list[WorkItem]:
    """The smallest size of a whole kernel with elements to judge, as Triton compiles it by default, on inputs that the
    case generates, or random ones."""
    items = [i for i in _kernel_items(case, variant, backend, "quick") if i.setup.fusion == variant.fusions[-1]]
    items = [i for i in items if not _has_empty(case, i.setup.sizes)] or items
    least = min((math.prod(i.setup.sizes.values()) for i in items), default=0)
    small = [i for i in items if math.prod(i.setup.sizes.values()) == least]
    chosen = [i for p in ("generated", "random", "") for i in small if i.input_set.startswith(p)]
    return chosen[:1]


def _has_empty(case: Case, sizes: Mapping[str, int]) -> bool:
    """Whether an input or an output has no elements at these sizes."""
    arguments = (*case.inputs.values(), *case.outputs.values())
    return any(math.prod(a.shape(sizes)) == 0 for a in arguments if isinstance(a, Shaped))


def _filled(case: Case, variant: Variant, item: WorkItem, count: int) -> WorkItem:
    """The item; with chosen padding, by asm alone, if any register holds padding. count: of inputs in its set."""
    setup = item.setup
    shape = setup.shape or (count,)
    whole_registers = all(setup.pack * format_of(a).unit_bits % 32 == 0 for a in case.inputs.values())
    whole_packs = math.prod(shape) % (setup.pack if setup.alone else setup.block) == 0
    if setup.padding is not None or (whole_registers and whole_packs and (setup.alone or len(shape) == 1)):
        return item
    plain = replace(setup, padding=_PADDING_SEED, alone=True, alignment=16, num_warps=_num_warps(variant)[0])
    return replace(item, setup=plain)


def _elementwise_items(case: Case, variant: Variant, backend: str, effort: str, target: str) -> list[WorkItem]:
    packs = packs_of(case, variant) if isinstance(variant, AsmVariant) else (1,)
    part = _quick_part(case, variant, packs, target) if effort == "quick" else (0, 1)
    if not BACKENDS[backend].executes:
        return _unique(list(_assembly_items(case, variant, packs, effort, part)))
    sets = [s.name for s in _element_sets(case, backend, effort, variant)]
    alone = effort == "quick" and _emulated_alone(variant, backend)
    plain = Setup(fusion=bool(variant.fusion), num_warps=_num_warps(variant)[0], alone=alone)
    items = [WorkItem(replace(plain, pack=p, block=block_of(p)), name) for p in packs for name in sets]
    items += _word_items(case, variant, backend, effort, plain)
    if BACKENDS[backend].shares and isinstance(variant, AsmVariant):
        items += shared_items(case, variant, effort)
    crossed = _edge_like(sets)
    if crossed:
        rows = _crossed(case, variant, packs, backend, effort, part, target)
        items += [WorkItem(setup, crossed, seed) for setup, seed in rows]
        if isinstance(variant, LaunchedVariant):
            # Shuffled: else what is read a power of two too early may be an equal input.
            items += [WorkItem(replace(plain, shape=(n,)), crossed, _SHUFFLE_SEED) for n in sizes_beside(variant)]
            items += [WorkItem(setup, crossed, _SHUFFLE_SEED) for setup in _misaligned(case, variant, plain)]
    return _unique(items)


def _quick_part(case: Case, variant: Variant, packs: Sequence[int], target: str) -> tuple[int, int]:
    """The part of the rows that a target runs at quick effort: see `_part`. All rows of what is not divided."""
    if isinstance(variant, LaunchedVariant) or _unread(case, variant, packs):
        return 0, 1
    return _part(policies(case, variant).targets, target)


def _part(targets: TargetSet, target: str) -> tuple[int, int]:
    """The number of this target's part of the rows, and how many parts there are.

    It depends on the case's targets alone: a choice of targets on the command line does not change what one of them
    runs.
    """
    declared = list(targets) if target in targets else list(KNOWN)
    index = declared.index(target) if target in declared else capability(target)
    return index % len(declared), len(declared)


def _unread(case: Case, variant: Variant, packs: Sequence[int]) -> bool:
    """Whether asm cannot be parsed here: then only compiled rows show names that a second copy declares again."""
    from ptxdiff.emulator import PtxError
    from ptxdiff.emulator.text import parse_asm

    if not isinstance(variant, AsmVariant):
        return False
    try:
        for pack in packs:
            parse_asm(asm_form(case, variant, pack).text)
    except (PtxError, CaseError):
        return True
    return False


def shared_items(case: Case, variant: AsmVariant, effort: str) -> Iterator[WorkItem]:
    """Runs with shared registers, of asm that writes an output before its last read of an input.

    Only the emulator can force the two into one register; the backend of machine code asks it. Asm without such a pair
    cannot fail here, and needs no run.
    """
    for pack in packs_of(case, variant):
        if may_share(case, variant, pack):
            tuples = word_sets(case, effort, variant, pack)
            for inputs in (*input_sets(case, effort), *tuples):
                if inputs.count <= LARGE:
                    setup = Setup(pack=pack, block=block_of(pack), fusion=bool(variant.fusion), context="shared")
                    yield WorkItem(setup, inputs.name)


SAMPLED = 1 << 30  # random inputs of a sweep on a GPU if there are too many inputs to try all


def sets_of(case: Case, backend: str, effort: str, variant: Variant | None = None) -> list[InputSet]:
    """The input sets of an elementwise case, with those of a variant: from its constants, and for each of its packs."""
    sets = _element_sets(case, backend, effort, variant)
    if variant is not None:
        sets += [s for p in packs_read(case, variant) for s in word_sets(case, effort, variant, p)]
    return sets


def _word_items(case: Case, variant: Variant, backend: str, effort: str, plain: Setup) -> Iterator[WorkItem]:
    """Runs on tuples, each at the pack that reads them.

    The emulator runs the asm by itself there: Triton's kernel may give an invocation other elements than neighbours, if
    a pack has more than 16 bytes. A Triton function runs with one warp, so that a thread has whole packs.
    """
    for pack in packs_read(case, variant):
        setup = replace(plain, pack=pack, block=block_of(pack), alone=_emulated_alone(variant, backend))
        if not isinstance(variant, AsmVariant):
            setup = replace(plain, num_warps=min(_num_warps(variant)))
        yield from (WorkItem(setup, s.name) for s in word_sets(case, effort, variant, pack))


def _element_sets(case: Case, backend: str, effort: str, variant: Variant | None) -> list[InputSet]:
    """The sets whose inputs stand for themselves, whichever of them share an invocation.

    On a GPU, exhaustive effort samples what it cannot exhaust.
    """
    sets = input_sets(case, effort)
    if variant is not None:
        sets += constant_sets(case, effort, variant)
    sampled = backend == "gpu" and effort == "exhaustive" and case.inputs and case.where is None
    if sampled and not any(s.name.startswith("exhaustive") for s in sets):
        sets.append(stratified(case, SAMPLED))
    return sets


def _edge_like(sets: Sequence[str]) -> str | None:
    """The set that is combined with every axis: the edges, or else a sample of all inputs."""
    for prefix in ("edges", "exhaustive", "hard", "ties", "random"):
        for name in sets:
            if name.startswith(prefix):
                return name
    return None


def _unique(items: Sequence[WorkItem]) -> list[WorkItem]:
    seen: dict[str, WorkItem] = {}
    for item in items:
        seen.setdefault(repr(item), item)
    return list(seen.values())


def _contexts(case: Case, variant: Variant) -> tuple[str, ...]:
    loops = policies(case, variant).carry and not isinstance(variant, LaunchedVariant)  # they loop themselves
    return ("straight", "loop") if loops else ("straight",)


def _num_warps(variant: Variant) -> tuple[int, ...]:
    return (variant.num_warps,) if isinstance(variant, LaunchedVariant) else (4, 1, 8)


def _shapes(variant: Variant) -> tuple[str, ...]:
    """The shapes. In two dimensions there are gaps between rows, for which a kernel of the case is not written."""
    return tuple(s for s in _SHAPES if s != "rows" or not isinstance(variant, LaunchedVariant))


def _setup(values: dict[str, Any]) -> Setup:
    """The setup for one row of values of the axes."""
    block = block_of(values["pack"])
    steps = LOOP_STEPS if values["context"] == "loop" else 1
    return Setup(**{**values, "shape": _SHAPES[values["shape"]](block)}, block=block, steps=steps)


def _axes(case: Case, variant: Variant, packs: Sequence[int], backend: str) -> dict[str, Sequence[object]]:
    """The values of each axis, the plain one first. Padding can be chosen only if the asm is emulated alone."""
    return {
        "pack": packs,
        "shape": _shapes(variant),
        "context": _contexts(case, variant),
        "fusion": variant.fusions,
        "alignment": _alignments(case, variant),
        "num_warps": _num_warps(variant),
        "shuffled": (None, _SHUFFLE_SEED),
        "padding": (None, _PADDING_SEED) if _emulated_alone(variant, backend) else (None,),
    }


def _emulated_alone(variant: Variant, backend: str) -> bool:
    """Whether setups may run the asm without a kernel around it, so without pointers and warps."""
    return BACKENDS[backend].asm_alone and isinstance(variant, AsmVariant)


def _alignments(case: Case, variant: Variant) -> tuple[int, ...]:
    """16 bytes and the size of a unit; for given PTX, which may test its addresses, also what lies between.

    Triton asks of a pointer only whether it is divisible by 16.
    """
    unit = _unit_bytes(case)
    return (16, unit, *(a for a in (8, 4, 2) if a > unit and isinstance(variant, PtxVariant)))


def _misaligned(case: Case, variant: Variant, setup: Setup) -> Iterator[Setup]:
    """For given PTX, the setups with each pointer misaligned alone: code may test one address and not another."""
    if isinstance(variant, PtxVariant):
        for name, argument in {**case.inputs, **case.outputs}.items():
            if not isinstance(argument, Scalar):
                unit = format_of(argument).unit_bits // 8
                for alignment in _alignments(case, variant):
                    if unit <= alignment < 16:
                        yield replace(setup, alignment=alignment, misaligned=name)


def _unit_bytes(case: Case) -> int:
    return min(format_of(a).unit_bits // 8 for a in (*case.inputs.values(), *case.outputs.values()))


def _crossed(
    case: Case, variant: Variant, packs: Sequence[int], backend: str, effort: str, part: tuple[int, int], target: str
) -> Iterator[tuple[Setup, int | None]]:
    """Setups in which the edges are run again, each with the seed that shuffles them."""
    if effort == "quick" and backend == "emulator":
        yield from _placed(case, variant, packs, target)
        for setup in _compiled(case, variant, packs, part):
            yield setup, None
        if _emulated_alone(variant, backend):
            yield from _alone(case, variant, packs, part)
        return
    axes = _axes(case, variant, packs, backend)
    rows = itertools.product(*axes.values()) if effort == "full" else pairwise(list(axes.values()))
    for row in rows:
        values: dict[str, Any] = dict(zip(axes, row, strict=True))
        shuffled = values.pop("shuffled")
        if _emulated_alone(variant, backend) and (values["context"] == "loop" or values["padding"] is not None):
            values |= {"alignment": 16, "num_warps": _num_warps(variant)[0]}  # asm alone has no pointers and no warps
        yield _setup(values), shuffled


def _placed(case: Case, variant: Variant, packs: Sequence[int], target: str) -> Iterator[tuple[Setup, int | None]]:
    """The setups that every target runs at every pack: shuffled inputs, chosen padding of a partial pack, and a loop.

    Asm that mixes elements, or loses one that it carries, is wrong on each target alone. For a Triton function, the
    shuffled inputs run with fusion, Triton's default, and with one warp: a thread then has eight elements.
    """
    alone = isinstance(variant, AsmVariant)
    plain: dict[str, Any] = {"fusion": bool(variant.fusion), "num_warps": _num_warps(variant)[0], "context": "straight"}
    otherwise = {} if alone else {"fusion": variant.fusions[-1], "num_warps": min(_num_warps(variant))}
    for pack in packs:
        values = {**plain, "pack": pack}
        yield Setup(**{**values, **otherwise}, block=block_of(pack), alone=alone), _SHUFFLE_SEED
        if alone and len(variant.fusions) > 1 and _contraction_open(case, variant, pack, target):
            yield Setup(**{**values, "fusion": True}, block=block_of(pack), alone=True), None
        if alone:
            yield replace(_setup({**values, "shape": "prime", "padding": _PADDING_SEED}), alone=True), _SHUFFLE_SEED
        if "loop" in _contexts(case, variant):
            yield replace(_setup({**values, "shape": "blocks", "context": "loop"}), alone=alone), None


def _contraction_open(case: Case, variant: Variant, pack: int, target: str) -> bool:
    """Whether ptxas may fuse a multiplication and an addition of the asm."""
    from ptxdiff.emulator import PtxError, analyse

    assert isinstance(variant, AsmVariant)
    try:
        form = asm_form(case, variant, pack)
        return analyse(form.text, form.constraints, target=target).contraction_open
    except (PtxError, CaseError):
        return False  # the item itself reports why the asm is refused


def _compiled(case: Case, variant: Variant, packs: Sequence[int], part: tuple[int, int]) -> Iterator[Setup]:
    """A target's part of the setups that Triton compiles, and for which the assembler runs too."""
    axes = _axes(case, variant, packs, "assembler")
    for axis in ("context", "shuffled", "padding"):
        del axes[axis]  # `_placed` has all of its values
    if not isinstance(variant, LaunchedVariant):  # launched variants mask their own tails
        axes["shape"] = ["ragged", "one", "blocks", "rows"]
    rows = share(list(axes.values()), *part)
    if isinstance(variant, AsmVariant) and not variant.derived_packs:
        first = [axis[0] for axis in axes.values()]
        rows += [(pack, *first[1:]) for pack in packs if all(row[0] != pack for row in rows)]
    for row in rows:
        values: dict[str, Any] = {"context": "straight", **dict(zip(axes, row, strict=True))}
        if values["shape"] == "ragged":
            values["shape"] = _RAGGED[part[0] % len(_RAGGED)]
        yield _setup(values)


def _alone(
    case: Case, variant: Variant, packs: Sequence[int], part: tuple[int, int]
) -> Iterator[tuple[Setup, int | None]]:
    """A target's part of the setups that need no compiler: padding of partial packs, loops, and every shape."""
    axes = _axes(case, variant, packs, "emulator")
    del axes["alignment"], axes["num_warps"]
    for row in share(list(axes.values()), *part):
        values: dict[str, Any] = dict(zip(axes, row, strict=True))
        shuffled = values.pop("shuffled")
        if values["context"] == "straight":
            values["padding"] = _PADDING_SEED  # Triton's kernel runs the straight rows without padding
        yield replace(_setup({**values, "num_warps": _num_warps(variant)[0]}), alone=True), shuffled


def _assembly_items(
    case: Case, variant: Variant, packs: Sequence[int], effort: str, part: tuple[int, int]
) -> Iterator[WorkItem]:
    """The setups that differ for a compiler: in pack, divisibility of the size, alignment, warps, context, or fusion.

    At quick effort, those that the emulator compiles on this target, and a loop.
    """
    axes: dict[str, Sequence[object]] = {
        "pack": packs,
        "context": _contexts(case, variant),
        "fusion": variant.fusions,
        "num_warps": _num_warps(variant)[:1],
    }
    if effort == "quick":
        yield from (WorkItem(setup, "none") for setup in _compiled(case, variant, packs, part))
        if isinstance(variant, LaunchedVariant) or "loop" not in axes["context"]:
            return
        axes["context"] = ("loop",)
        axes["pack"] = [packs[part[0] % len(packs)]]
    if effort == "full":
        axes |= {
            "shape": _shapes(variant),
            "alignment": (16, _unit_bytes(case)),
            "num_warps": _num_warps(variant),
        }
    for row in itertools.product(*axes.values()) if effort == "full" else pairwise(list(axes.values())):
        yield WorkItem(_setup({"shape": "blocks", **dict(zip(axes, row, strict=True))}), "none")


def _kernel_items(case: Case, variant: LaunchedVariant, backend: str, effort: str) -> Iterator[WorkItem]:
    alignments = (16,) if effort == "quick" else _alignments(case, variant)
    made = ("generated/1",) * (case.generate is not None)
    for size, fusion in itertools.product(case.sizes, variant.fusions):
        plain = Setup(sizes=dict(size), num_warps=variant.num_warps, fusion=fusion)
        setups = [replace(plain, alignment=a) for a in alignments]
        setups += () if effort == "quick" else _misaligned(case, variant, plain)
        sets = (*made, *sets_for(case, size)) if BACKENDS[backend].executes else ("none",)
        yield from (WorkItem(setup, name) for setup in setups for name in sets)


def sized(item: WorkItem, count: int) -> WorkItem:
    """The item with a shape: one dimension of `count` if it has none yet, as in a run of the whole set."""
    if item.setup.shape or item.setup.sizes:
        return item
    return replace(item, setup=replace(item.setup, shape=(count,)))


def key_of(case_name: str, variant_name: str, target: str, backend: str, item: WorkItem, compiler: str = "") -> Key:
    """The record key of a sized item. The input set's name states the placement: `edges/1+shuffled+padded`.

    compiler: name and version of another Triton build.
    """
    s = item.setup
    placement = "+shuffled" * (item.shuffled is not None) + "+padded" * (s.padding is not None)
    placement += f"+only-{s.misaligned}-misaligned" if s.misaligned else ""
    return Key(
        case_name, variant_name, target, backend,
        pack=s.pack, shape=s.shape_text, alignment=s.alignment, num_warps=s.num_warps,
        context=s.context, fusion=s.fusion, input_set=item.input_set + placement,
        compiler=compiler, assembler=s.assembler.label if s.assembler else "",
    )  # fmt: skip
