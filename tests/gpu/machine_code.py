"""Run on the GPU here the machine code that the interpreter ran: `python tests/gpu/machine_code.py record|run ...`.

`record WHAT FILE` needs no GPU. It assembles kernels for a target, runs their machine code on the CPU, and keeps
cubins, arguments and results in a file. WHAT is `forms`, `sequences` or `moves` (which teach the table of machine
code), `programs` (random ones, at -O0 and -O3 by each --ptxas), `findings` (folders that `ptxdiff fuzz` wrote, or a
list such as `tests/fuzz/ptxas_faults.json`), `doubts` (instructions whose bits only hardware can tell), `catalogue`
(the kernels of case files; give pytest's arguments), or `tests` (kernels of the tests of machine code).
`run FILE...` launches all of it on the GPU, prints what differs, and with --write adds `confirmed` to the ledger.
"""

import argparse
import json
import os
import re
import struct
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ptxdiff.backends.recorded import LaunchRecorder, confirmations, on_device, read

LIMIT = 20.0  # seconds of a kernel in the interpreter
_QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning", "-o", "addopts=", "-p", "no:cacheprovider")


def record_forms(recorder, args):
    """A kernel for each form that teaches, given in registers, as a constant and as parameters, at two levels."""
    from ptxdiff.conformance import forms, teaching
    from ptxdiff.conformance.sequences import SEQUENCES
    from ptxdiff.emulator import PtxError
    from ptxdiff.triton.targets import assembler

    sequences = args.what == "sequences"
    every = list(SEQUENCES if sequences else forms.bounds_of())
    k, n = args.part
    names = every[k - 1 :: n]
    left = Counter()
    for given in teaching.GIVEN:
        tasks = list(teaching.tasks(names, given, args.target))
        for path in args.ptxas or [assembler(args.target).path]:
            version = newest_ptx(path, args.target)
            for level in args.levels:
                for start in range(0, len(tasks), 32):
                    some, cubin = teaching.assembled(tasks[start : start + 32], path, level, version, args.target)
                    left["refused by ptxas"] += len(tasks[start : start + 32]) - len(some)
                    codes = codes_of(cubin) if some else {}
                    for task in some:
                        name = f"{task.snippet.form} {given} -O{level}"
                        try:
                            for _, launch in teaching.launches(task):
                                recorder.run(name, args.what, args.target, cubin, codes[task.name], launch.values,
                                             (launch.blocks,), launch.threads, limit=LIMIT)  # fmt: skip
                        except PtxError as error:
                            left[reason(error)] += 1
    return left


def record_moves(recorder, args):
    """The kernels that teach moves of data and branches, by each ptxas and at each level."""
    import numpy as np

    from ptxdiff.emulator import PtxError
    from ptxdiff.fuzz.assemblers import assembler
    from ptxdiff.fuzz.move_kernels import SCALARS, WARP, WORDS, kernels, module
    from ptxdiff.triton.targets import assembler as bundled

    left = Counter()
    for one in [assembler(p, level) for p in args.ptxas or [bundled(args.target).path] for level in args.levels]:
        done = one.assemble(module(args.target), args.target)
        if done.ended != "assembled":
            raise SystemExit(f"{done.ended} by {one.label}: {done.words[:200]}")
        codes = codes_of(done.cubin)
        for number, kernel in enumerate(kernels()):
            for scalar in SCALARS:
                output = np.full((WARP, WORDS), 0xA5A5A5A5, np.uint32)  # some kernels store zeros
                try:
                    name, code = f"{kernel.name} of {scalar:#x} by {one.label}", codes[f"k{number}"]
                    values = kernel.values(output, scalar)
                    recorder.run(name, args.what, args.target, done.cubin, code, values, (1,), WARP, limit=LIMIT)
                except PtxError as error:
                    left[reason(error)] += 1
    return left


def newest_ptx(path, target):
    """The newest version of PTX that Triton writes and a ptxas reads."""
    from ptxdiff.fuzz.assemblers import assembler
    from ptxdiff.triton.targets import probe

    for version in (probe()[target].ptx_version, "9.0", "8.8", "8.5", "8.1"):
        text = f".version {version}\n.target {target}\n.address_size 64\n.visible .entry none() {{ ret; }}\n"
        if assembler(path, 0).assemble(text, target).ended == "assembled":
            return version
    raise SystemExit(f"{path} assembles nothing for {target}")


def codes_of(cubin):
    """The machine code of each kernel of a cubin."""
    from ptxdiff.sass.cubin import disassembled, machine_codes
    from ptxdiff.triton.targets import tool

    return machine_codes(cubin, disassembled(cubin, tool("nvdisasm")))


def reason(error):
    """Why a launch is left out, without its numbers."""
    return f"{type(error).__name__}: {getattr(error, 'message', error)}"[:70]


def record_programs(recorder, args):
    """Random programs, as `ptxdiff fuzz` makes them."""
    from ptxdiff.emulator import PtxError
    from ptxdiff.fuzz.assemblers import assembler
    from ptxdiff.fuzz.execution import inputs_of, text_of
    from ptxdiff.fuzz.generate import FAMILIES, program
    from ptxdiff.model.targets import capability
    from ptxdiff.triton.targets import assembler as bundled

    left = Counter()
    k = args.part[0]
    until = time.monotonic() + args.seconds
    some = [assembler(p, level) for p in args.ptxas or [bundled(args.target).path] for level in args.levels]
    for first in range((k - 1) * args.count, k * args.count, 32):
        if time.monotonic() > until:
            left["no time"] += k * args.count - first
            break
        seeds = [f"recorded/{first + place}" for place in range(32)]
        made = [program(s, capability(args.target), dict.fromkeys(FAMILIES, 1.0)) for s in seeds]
        for one in some:
            done = one.assemble(text_of(made, args.target), args.target)
            if done.ended != "assembled":
                left[f"{done.ended} by {one.label}"] += len(made)
                continue
            codes = codes_of(done.cubin)
            for place, seed in enumerate(seeds):
                try:
                    ran_program(recorder, args, f"{seed} {one.label}", done.cubin, codes[f"p{place}"], inputs_of(seed))
                except PtxError as error:
                    left[reason(error)] += 1
    return left


def ran_program(recorder, args, name, cubin, code, inputs):
    """Run one program and keep it."""
    import numpy as np

    from ptxdiff.emulator import Buffer
    from ptxdiff.fuzz.program import BLOCK, OUTPUTS

    buffers = [Buffer(np.ascontiguousarray(inputs), "inputs"),
               Buffer(np.zeros((len(inputs), OUTPUTS), np.uint32), "outputs", defined=False)]  # fmt: skip
    recorder.run(name, args.what, args.target, cubin, code, buffers, (len(inputs) // BLOCK,), BLOCK, limit=LIMIT)


def record_findings(recorder, args):
    """Reduced programs in folders that `ptxdiff fuzz` wrote, assembled by each ptxas for the target.

    What the GPU should give is what the machine code gives in the interpreter: the launch says whether the finding is
    real on hardware. Its words beside the emulator's are printed here.
    """
    import numpy as np

    from ptxdiff.emulator import PtxError
    from ptxdiff.fuzz.assemblers import assembler
    from ptxdiff.fuzz.execution import emulated, inputs_of
    from ptxdiff.fuzz.program import BLOCK
    from ptxdiff.triton.targets import assembler as bundled

    left = Counter()
    for origin, finding in findings_of(args.rest):
        text = retargeted(finding["text"], args.target)
        inputs = inputs_of(finding["seed"]).copy()
        if finding["inputs"]:
            inputs[0] = finding["inputs"]  # the thread of the finding may have another number than in its program
        right = emulated(text, "p0", inputs)
        for one in [assembler(p, level) for p in args.ptxas or [bundled(args.target).path] for level in args.levels]:
            done = one.assemble(text, args.target)
            if done.ended != "assembled":
                left[f"{done.ended} by {one.label}"] += 1
                continue
            name = f"{origin} {finding['seed']} {one.label}"
            try:
                ran_program(recorder, args, name, done.cubin, codes_of(done.cubin)["p0"], inputs)
            except PtxError as error:
                left[reason(error)] += 1
                print(f"{name}: {error}; recorded with the emulator's words")
                recorder.expect(f"{name}, beside the emulator", args.what, args.target, done.cubin, "p0", [inputs],
                                [right], (len(inputs) // BLOCK,), BLOCK)  # fmt: skip
                continue
            after = np.frombuffer(recorder.blob(recorder.launches[-1].buffers[1].after), np.uint32)
            wrong = (after.reshape(right.shape) != right).any(1)
            print(f"{name}: machine code and emulator differ in {int(wrong.sum())} of {len(wrong)} threads")
    return left


def findings_of(paths):
    """Findings, each with a word that says where it is from: of folders that `ptxdiff fuzz` wrote, and of lists."""
    for path in map(Path, paths):
        if path.is_file():
            yield from ((path.stem, finding) for finding in json.loads(path.read_text()))
        for file in sorted(path.rglob("finding.json")):
            yield file.parent.name, json.loads(file.read_text())


def retargeted(text, target):
    """The module for another target, in a version of PTX that has it."""
    from ptxdiff.fuzz.execution import VERSION
    from ptxdiff.model.targets import INTRODUCED, version_number

    stated = re.search(r"\.version\s+(\S+)", text)[1]
    version = max(stated, VERSION, INTRODUCED.get(target, VERSION), key=version_number)
    text = re.sub(r"\.version\s+\S+", f".version {version}", text)
    return re.sub(r"\.target\s+\S+", f".target {target}", text)


def record_catalogue(recorder, args):
    """The kernels of case files that the sass backend runs, in this process: pytest's arguments follow."""
    from unittest.mock import patch

    import pytest

    from ptxdiff.sass import cubin as reader
    from ptxdiff.sass import run as runner
    from ptxdiff.sass.text import Unsupported

    read_code, cubins, left = reader.machine_code, {}, Counter()
    seen = Counter()

    def machine_code(cubin, text, name=None):
        code = read_code(cubin, text, name)
        cubins[id(code)] = cubin, code
        return code

    def run_machine_code(code, values, grid, block, **options):
        cubin = cubins[id(code)][0]
        size = sum(getattr(getattr(v, "buffer", v), "size", 0) for v in values)
        seen[cubin] += 1
        if seen[cubin] > args.each or size > args.most or recorder.size > args.total << 20:
            left["more launches of a cubin than --each, or larger than --most"] += 1
            raise Unsupported("not recorded")
        return recorder.run(code.name, "catalogue", args.target, cubin, code, values, grid, block, **options)

    words = [
        "-q",
        *_QUIET,
        "-n0",
        "--ptx-backend=sass",
        f"--ptx-target={args.target}",
    ]
    with patch.object(reader, "machine_code", machine_code), patch.object(runner, "run_machine_code", run_machine_code):
        pytest.main([*words, *args.rest])
    return left


def record_tests(recorder, args):
    """What tests of machine code run for the target and compare with the PTX: pytest's arguments follow.

    Without arguments, the tests of tests/sass that compare bits: kernels with clusters, barriers, copies and shared
    memory, which no form and no random program has.
    """
    import pytest

    from ptxdiff.emulator import Buffer
    from ptxdiff.sass import cubin as reader
    from ptxdiff.sass import run as runner
    from ptxdiff.sass.text import Unsupported

    read_all, run_code = reader.machine_codes, runner.run_machine_code
    cubins, left = {}, Counter()

    def machine_codes(cubin, text):
        found = read_all(cubin, text)
        cubins.update({id(code): (cubin, code) for code in found.values()})
        return found

    def run_machine_code(code, values, grid, block, **options):
        if code.target != args.target.rstrip("af"):
            left["for another target"] += 1
        elif set(options) - {"shared_bytes", "limit"} and any(options.get(n) for n in ("cluster", "observer")):
            left["with clusters of the launch, or observed"] += 1
        elif id(code) not in cubins or sum(v.size for v in values if isinstance(v, Buffer)) > args.most:
            left["changed code, or larger than --most"] += 1
        else:
            kept = {n: options[n] for n in ("shared_bytes", "limit") if n in options}
            name = os.environ.get("PYTEST_CURRENT_TEST", code.name).rpartition("/")[2]
            try:
                return recorder.run(name, "tests", args.target, cubins[id(code)][0], code, values, grid, block, **kept)
            except Unsupported as reason_text:
                left[reason(reason_text)] += 1
        return run_code(code, values, grid, block, **options)

    # Before the tests' modules are imported, which take these names.
    reader.machine_codes, runner.run_machine_code = machine_codes, run_machine_code
    given = args.rest or ["tests/sass", "-k", "gives_the_bits or clusters_along or for_several or for_another_block"]
    pytest.main(["-q", *_QUIET, "-p", "no:xdist", *given])
    return left


_HALVES = (
    "{ .reg .pred h, l; .reg .b16 dl, dh, al, ah; .reg .b32 d, x, y; OP.s16x2 d, $1, $2; mov.b32 {dl, dh}, d; "
    "mov.b32 {al, ah}, $1; setp.eq.s16 l, dl, al; setp.eq.s16 h, dh, ah; "
    "selp.b32 x, 0x9E3779B1, 0, h; selp.b32 y, 0x85EBCA6B, 0, l; add.u32 $0, d, x; add.u32 $0, $0, y; }"
)
DOUBTS = {
    # Two minima, alone and with predicates that say in which half the first operand is the result.
    "min.s16x2": "min.s16x2 $0, $1, $2;",
    "max.s16x2": "max.s16x2 $0, $1, $2;",
    "min.s16x2 with predicates": _HALVES.replace("OP", "min"),
    "max.s16x2 with predicates": _HALVES.replace("OP", "max"),
    # A negated NaN as operand of a sum, on each side, and negated alone.
    "negated second of a sum": "{ .reg .f64 n; neg.f64 n, $2; add.rn.f64 $0, $1, n; }",
    "negated first of a sum": "{ .reg .f64 n; neg.f64 n, $1; add.rn.f64 $0, n, $2; }",
    "negated product": "{ .reg .f64 n; neg.f64 n, $1; mul.rn.f64 $0, n, $2; }",
    "negated addend": "{ .reg .f64 n; neg.f64 n, $2; fma.rn.f64 $0, $1, $1, n; }",
    "magnitude of a sum": "{ .reg .f64 n; abs.f64 n, $2; add.rn.f64 $0, $1, n; }",
}


def record_doubts(recorder, args):
    """Short kernels on every pair of edge values, among them NaNs with both signs and several payloads."""
    import numpy as np

    from ptxdiff.emulator import Buffer, PtxError, load_kernel, run_kernel
    from ptxdiff.fuzz.assemblers import assembler
    from ptxdiff.triton.targets import assembler as bundled

    left = Counter()
    double = [0, 1, 0x3FF << 52, 0x7FF << 52, 0x7FF8 << 48, (0x7FF8 << 48) + 5, (0x7FF << 52) + 7, 0x7FEF << 48]
    half = [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x1234]
    for name, text in DOUBTS.items():
        bits = 64 if "f64" in text else 32
        edges = np.array(double + [v | 1 << 63 for v in double] if bits == 64 else half, np.uint64)
        if bits == 32:
            edges = (edges[:, None] | edges[None, :] << np.uint64(16)).reshape(-1)
        a, b = (g.reshape(-1) for g in np.meshgrid(edges, edges))
        count = -(-len(a) // 128) * 128
        columns = [np.resize(c, count).astype(f"u{bits // 8}") for c in (a, b)]
        ptx = kernel_text(text, bits, args.target)
        for one in [assembler(p, level) for p in args.ptxas or [bundled(args.target).path] for level in args.levels]:
            done = one.assemble(ptx, args.target)
            if done.ended != "assembled":
                left[f"{done.ended} by {one.label}: {done.words[:200]}"] += 1
                continue
            result = np.zeros_like(columns[0])
            buffers = [*map(Buffer, columns), Buffer(result, "output", defined=False)]
            code = codes_of(done.cubin)["doubt"]
            try:
                recorder.run(f"{name} {one.label}", args.what, args.target, done.cubin, code, buffers, (count // 128,),
                             128, limit=LIMIT)  # fmt: skip
            except PtxError as error:
                left[f"{reason(error)}: the emulator's words instead"] += 1
                run_kernel(load_kernel(ptx, "doubt"), buffers, (count // 128,), num_threads=128)
                recorder.expect(f"{name} {one.label}, beside the emulator", args.what, args.target, done.cubin, "doubt",
                                columns, [result], (count // 128,), 128)  # fmt: skip
    path = (args.ptxas or [bundled(args.target).path])[0]
    if words := record_fchk(recorder, args, assembler(path, 3)):
        left[words] += 1
    return left


def record_fchk(recorder, args, one):
    """FCHK's predicate as a word, on every pair of exponents with several fractions: a division whose slow path is
    replaced by the word 1, and its quick result by 0. Returns why it was left out; "" if it was not.
    """
    import itertools

    import numpy as np

    from ptxdiff.emulator import Buffer
    from ptxdiff.sass.cubin import disassembled
    from ptxdiff.triton.targets import tool

    done = one.assemble(kernel_text("div.rn.f32 $0, $1, $2;", 32, args.target), args.target)
    text = disassembled(done.cubin, tool("nvdisasm"))
    code = FCHK_CODE.search(text)
    if code is None:
        return f"a division of another shape by {one.label}"
    encoded = b"".join(int(w, 16).to_bytes(8, "little") for w in re.findall(r"/\* 0x([0-9a-f]{16}) \*/", code[0]))
    at, result = done.cubin.index(encoded), int(code["result"])
    assert done.cubin.count(encoded) == 1
    words = list(struct.unpack(f"<{len(encoded) // 8}Q", encoded))
    # The last three instructions before the call, and the call: result, branch over the slow path, return address.
    branch = words[-6]
    assert branch >> 16 == 0xC, "the branch does not lead behind the call and its move"
    words[-8] = result << 16 | 0x7802  # MOV result, 0
    words[-7] = words[-7] & ~((1 << 41) - 1) | 0xF00
    words[-4] = 1 << 32 | result << 16 | 0x7802  # MOV result, 1
    words[-2], words[-1] = 0x47947, words[-5]  # BRA behind the call
    cubin = done.cubin[:at] + struct.pack(f"<{len(words)}Q", *words) + done.cubin[at + len(encoded) :]
    exponents = np.arange(1 << 16, dtype=np.uint32)
    fractions = (0, 1, 0x400000, 0x7FFFFF)
    pairs = list(itertools.product(fractions, fractions))
    columns = [np.concatenate([(exponents >> 8) << 23 | a for a, _ in pairs]),
               np.concatenate([(exponents & 255) << 23 | b for _, b in pairs])]  # fmt: skip
    buffers = [*map(Buffer, columns), Buffer(np.zeros_like(columns[0]), "output", defined=False)]
    recorder.run(f"FCHK {one.label}", args.what, args.target, cubin, codes_of(cubin)["doubt"], buffers,
                 (len(columns[0]) // 128,), 128, limit=200)  # fmt: skip
    return ""


_WORDS = r"[^\n]*\n[^\n]*\n"  # an instruction's two lines in nvdisasm's text
FCHK_CODE = re.compile(
    rf"FCHK P0, {_WORDS}(?:(?!FCHK)[^\n]*\n[^\n]*\n)*?[^\n]*FFMA R(?P<result>\d+),{_WORDS}[^\n]*@!P0 BRA {_WORDS}"
    rf"[^\n]*MOV R\d+, 0x\w+ {_WORDS}[^\n]*CALL\.REL\.NOINC {_WORDS}"
)


def kernel_text(text, bits, target):
    """A kernel that runs a text on two operands of each thread."""
    lines = [".version 8.0", f".target {target}", ".address_size 64",
             ".visible .entry doubt(.param .u64 one, .param .u64 two, .param .u64 out) {",
             ".reg .b32 %i, %t; .reg .b64 %p, %o;", f".reg .b{bits} %v<3>;",
             "mov.u32 %i, %ctaid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, 128, %t;",
             f"mul.wide.u32 %o, %i, {bits // 8};"]  # fmt: skip
    for k, name in ((1, "one"), (2, "two")):
        lines.append(f"ld.param.u64 %p, [{name}]; add.u64 %p, %p, %o; ld.global.b{bits} %v{k}, [%p];")
    for k in range(3):
        text = text.replace(f"${k}", f"%v{k}")
    return "\n".join(
        [*lines, text, f"ld.param.u64 %p, [out]; add.u64 %p, %p, %o; st.global.b{bits} [%p], %v0;", "ret; }"]
    )


def run(args):
    """Launch everything on the GPU, and print what differs. Returns 1 if something does."""
    from ptxdiff.conformance import taught
    from ptxdiff.processes.child import of_target

    results, differing = [], 0
    for path in args.files:
        started = time.monotonic()
        launches, blobs = read(path)
        device = of_target(launches[0].target) if launches else None
        if device is None:
            print(f"{path}: no GPU here runs {launches[0].target if launches else 'it: it is empty'}")
            return 1
        wrong = 0
        for number, (launch, words, images) in enumerate(on_device(device, launches, blobs)):
            if words and args.dump:
                args.dump.mkdir(parents=True, exist_ok=True)
                for place, image in enumerate(images):
                    (args.dump / f"{path.stem}.{number}.{place}.bin").write_bytes(image)
            results.append({"target": launch.target, "group": launch.group, "forms": launch.forms, "words": words})
            if words:
                wrong += 1
                print(f"  {launch.group}, {launch.name}: {words}", flush=True)
        differing += wrong
        print(f"{path.name}: {len(launches)} launches on {device.gpu.name}, {wrong} differ, "
              f"{time.monotonic() - started:.1f} s", flush=True)  # fmt: skip
    text = confirmations(results, taught.PATH.read_text())
    entries = [json.loads(line) for line in text.splitlines()]
    print(f"forms confirmed: {sum('confirmed' in e for e in entries)}, refuted: {sum('refuted' in e for e in entries)}")
    if args.write:
        args.write.write_text(text)
    return int(bool(differing))


RECORD = {"forms": record_forms, "sequences": record_forms, "moves": record_moves, "programs": record_programs,
          "findings": record_findings, "doubts": record_doubts,
          "catalogue": record_catalogue, "tests": record_tests}  # fmt: skip


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("record")
    made.add_argument("what", choices=RECORD)
    made.add_argument("file", type=Path)
    made.add_argument(
        "rest", nargs="*", help="folders or lists of findings; pytest's arguments for catalogue and tests"
    )
    made.add_argument("--target", default="sm_90a")
    made.add_argument("--ptxas", action="append", default=[], metavar="PATH")
    made.add_argument("--levels", type=lambda t: tuple(map(int, t.split(","))), default=(0, 3), metavar="0,3")
    made.add_argument("--part", type=lambda t: tuple(map(int, t.split("/"))), default=(1, 1), metavar="K/N")
    made.add_argument("--count", type=int, default=1024, help="random programs of a part")
    made.add_argument("--seconds", type=float, default=1e9, help="stop making random programs after this time")
    made.add_argument("--each", type=int, default=2, help="launches of a cubin of the catalogue")
    made.add_argument("--most", type=int, default=1 << 18, help="bytes of a launch's buffers, in the catalogue")
    made.add_argument("--total", type=int, default=256, help="MiB of the catalogue before compression")
    ran = verbs.add_parser("run")
    ran.add_argument("files", nargs="+", type=Path)
    ran.add_argument("--write", type=Path, metavar="LEDGER", help="write the ledger with what was confirmed")
    ran.add_argument("--dump", type=Path, metavar="FOLDER", help="write the buffers of launches that differ")
    args = parser.parse_args(words)
    if args.verb == "run":
        return run(args)
    recorder, started = LaunchRecorder(), time.monotonic()
    left = RECORD[args.what](recorder, args)
    recorder.write(args.file)
    forms = {form for launch in recorder.launches for form in launch.forms}
    print(f"{args.file}: {len(recorder.launches)} launches, {len(forms)} forms of machine instructions, "
          f"{args.file.stat().st_size >> 10} KiB, {time.monotonic() - started:.0f} s")  # fmt: skip
    for words, count in left.most_common(12):
        print(f"  left out {count}: {words}")
    return 0 if recorder.launches else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
