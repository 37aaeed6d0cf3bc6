"""Run bulk tensor copies on the GPU here and compare with the specification: `python tests/gpu/tensor_copies.py`.

Which reductions the GPU has at all, then copies of tiles and of columns of pixels (im2col) to shared memory, copies
from it, and reductions of all kinds, by maps that the driver makes (cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col),
which are also read as the CPU's machine code reads them. The driver compiles the PTX. On Blackwell also rows (gather4,
scatter4) and columns along W without a halo. Each mode, operation and type runs in a process of its own, so a fault
ends one of them. `--layout` prints which bits of the driver's map a field of im2col has.

Ends with 1 if a bit differs, if the emulator accepts a reduction that the GPU refuses or refuses one of the ISA's table
that the GPU has, if the driver's map is read wrongly, or if something did not run; with 0 and a reason where no GPU has
tensor maps.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import sys
import time
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ptxdiff.conformance.fetch import CudaContext, CudaError, NoDevice
from ptxdiff.emulator.kernel.async_copy.tensor_maps import decoded
from ptxdiff.emulator.kernel.async_copy.tensor_reductions import in_the_table, reduction
from ptxdiff.sass.tensor_maps import of_the_device, read_map
from tests.support.emulator.tensor_copies import (
    OPERATIONS,
    THREADS,
    TYPES,
    Case,
    cases,
    float32_codes,
    loaded,
    numbers,
    smallest,
    stored,
)  # fmt: skip
from tests.support.emulator.tensor_runs import host_map

ELEMENTS = {8: 10, 9: 8, 10: 9}
"""By the code of PTX: that of the driver, where it is another one (float32 that is flushed, float64, bfloat16)."""
NAMES = {0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 8: "f32.ftz", 9: "f64",
         10: "bf16", 11: "tf32", 12: "tf32.ftz"}  # fmt: skip
ROUNDED = {code: NAMES[code] for code in (7, 8, 11, 12)}
"""The types of float32, of which a copy may round or flush, by the code of PTX."""
GUARD = 256
MAP = 128
OF_FIELDS = 64
"""The first bytes of a map have all fields; the driver writes further numbers behind them."""
LOADS, STORES = ("im2col", "tile"), ("tile", "im2col_no_offs")
BLACKWELL_LOADS, BLACKWELL_STORES = ("tile::gather4", "im2col::w", "im2col::w::128"), ("tile::scatter4",)
SECONDS_OF_ONE = 40
PROCESSES = 8


class MapRefused(Exception):
    """The driver makes no such map."""


def encoded(context, case, address):
    """The 128 bytes of the driver's map of a case's tensor at an address."""
    rank = case.tensor.ndim
    space = ctypes.create_string_buffer(MAP + 64)
    place = -(-ctypes.addressof(space) // 64) * 64
    sizes = (ctypes.c_uint64 * rank)(*case.shape[::-1])
    strides = (ctypes.c_uint64 * rank)(*[s * case.tensor.itemsize for s in case.strides[-2::-1]])
    steps = [1, *case.steps, *[1] * (rank - 1 - len(case.steps))]
    kind = ELEMENTS.get(case.element, case.element)
    head = (ctypes.c_void_p(place), kind, rank, ctypes.c_uint64(address), sizes, strides)
    tail = (0, case.swizzle, 0, case.fill)
    box = case.box[::-1]
    if not case.lower:
        name, middle = "cuTensorMapEncodeTiled", [(ctypes.c_uint32 * rank)(*box)]
    elif "::w" in case.mode:
        name, middle = "cuTensorMapEncodeIm2colWide", [case.lower[0], case.upper[0], *box]
        tail = (0, int(case.mode.endswith("128")), *tail[1:])
    else:
        corners = ctypes.c_int * len(case.lower)
        name, middle = "cuTensorMapEncodeIm2col", [corners(*case.lower), corners(*case.upper), *box]
    try:
        context._call(name, *head, *middle, (ctypes.c_uint32 * rank)(*steps), *tail)
    except CudaError as e:
        raise MapRefused(f"{e} for {case}") from None
    return ctypes.string_at(place, MAP)


def ran(context, case, data):
    """After the kernel: the bytes of the tensor and those behind the pointer; and the map with the tensor's address.

    Guard zones around both must stay. After a CudaError nothing runs in this process any more.
    """
    arrays = [case.tensor.view(np.uint8).reshape(-1), data]
    pointers = []
    for array in arrays:
        pointers.append(context.allocate(array.nbytes + 2 * GUARD))
        guard = np.full(GUARD, 0xA5, np.uint8)
        context.upload(pointers[-1], np.concatenate([guard, array, guard]))
    found_map = encoded(context, case, pointers[0] + GUARD)
    values = [ctypes.create_string_buffer(found_map, MAP),
              ctypes.c_uint64(pointers[1] + GUARD), *map(ctypes.c_int32, case.numbers)]  # fmt: skip
    module = context.load(case.text(context.target).encode() + b"\0")
    kernel = context.kernel(module, "k")
    given = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    context._call("cuLaunchKernel", kernel, 1, 1, 1, THREADS, 1, 1, 0, None, given, None)
    context._call("cuCtxSynchronize")
    after = []
    for array, pointer in zip(arrays, pointers, strict=True):
        found = np.zeros(array.nbytes + 2 * GUARD, np.uint8)
        context.download(found, pointer)
        if (found[:GUARD] != 0xA5).any() or (found[-GUARD:] != 0xA5).any():
            raise AssertionError(f"a guard zone has changed: {case}")
        after.append(found[GUARD:-GUARD])
        context.free(pointer)
    context._call("cuModuleUnload", module)
    return *after, found_map, pointers[0] + GUARD


def differences(context, case):
    """How many bytes of the tensor and of shared memory differ from the specification, with up to eight pairs of an
    element's bits, wanted and found; the map and its address."""
    rng = np.random.default_rng(case.bytes)
    data = np.full(case.bytes, 0xA5, np.uint8)
    if case.stores:
        data = numbers(rng, case.element, (case.bytes // case.tensor.itemsize,)).view(np.uint8).copy()
    tensor, shared, *found_map = ran(context, case, data)
    if case.op and not in_the_table(case.op, case.element):  # what it gives is specified nowhere
        return 0, [], *found_map
    wrong, bits = 0, f"u{case.tensor.itemsize}"
    codes = set()
    for found, wanted in (
        (tensor, (stored(case, data) if case.stores else case.tensor).view(np.uint8).reshape(-1)),
        (shared, data if case.stores else loaded(case)),
    ):
        wrong += int((found != wanted).sum())
        found, wanted = found.view(bits), wanted.view(bits)
        codes |= {f"{a:#x} -> {b:#x}" for a, b in zip(wanted.tolist(), found.tolist(), strict=True) if a != b}
    return wrong, sorted(codes)[:8], *found_map


def read_wrongly(case, found, address):
    """What the CPU's machine code reads in another way in the driver's map, or has at other bits; "" if nothing."""
    given = host_map(case, SimpleNamespace(address=address)).bytes
    read, wanted = read_map(found), decoded(given)
    if read != wanted:
        return f"{found.hex(' ', 4)} is read as {read}, not {wanted}"
    here = of_the_device(given)
    if here[:OF_FIELDS] != found[:OF_FIELDS]:
        return f"{found.hex(' ', 4)} of the driver, and {here.hex(' ', 4)} here"
    return ""


def further_words(case, found):
    """The numbers of the driver's map behind the fields, by name."""
    words = np.frombuffer(found, "<u4")[OF_FIELDS // 4 :]
    told = {f"word {16 + k} = {int(word):#x}" for k, word in enumerate(words) if word and k}
    size = "the box's bytes" if words[0] == case.bytes else f"{int(words[0])} with a box of {case.bytes} bytes"
    return told | {f"word 16 is {size}"}


def one(context, kind, count, seed):
    """The result of one kind: `kind` with the numbers of copies that ran, differ, have no map, and what went wrong."""
    phase, mode, op, element = (kind[k] for k in ("phase", "mode", "op", "element"))
    result = {**kind, "ran": 0, "differ": 0, "bytes": 0, "no map": 0, "error": "", "first": "", "map": "", "words": []}
    if phase == "legal":
        chosen = [smallest(op, element, 2), smallest(op, element, 1)]
    else:
        chosen = cases(count, seed, (mode,), op, element, out=phase == "store")
    for case in chosen:
        try:
            wrong, codes, found, address = differences(context, case)
        except MapRefused as e:
            result["no map"] += 1
            result["first"] = result["first"] or str(e)
            continue
        except (CudaError, AssertionError) as e:
            return {**result, "error": f"{e}: {case}" if isinstance(e, CudaError) else str(e)}
        result["ran"] += 1
        result["bytes"] += wrong
        if wrong:
            result["differ"] += 1
            result["first"] = result["first"] or f"{wrong} bytes, {', '.join(codes)}: {case}"
        result["map"] = result["map"] or read_wrongly(case, found, address)
        result["words"] = sorted({*result["words"], *further_words(case, found)})
    return result


def in_a_context(kind, count, seed):
    """The result of one kind in a context of its own."""
    return one(CudaContext(), kind, count, seed)


def _send(end, work):
    """In a process of its own: send what work gives, or why it gives nothing."""
    try:
        end.send(work())
    except Exception as e:
        end.send({"error": f"{type(e).__name__}: {e}"})
    end.close()
    os._exit(0)  # nothing is to be freed after a fault of the GPU


def in_processes(works, end, processes):
    """The results (dicts) of works by name, as they come, each from a forked process with nothing of the GPU in it.

    A work that has not begun at `end` does not run. Its result then has only an error, as after a crash or no end.
    """
    fork = multiprocessing.get_context("fork")
    left, running = list(works.items()), {}
    while left or running:
        while left and len(running) < processes:
            name, work = left.pop(0)
            if time.monotonic() > end:
                yield name, {"error": "not run: the time is over"}
                continue
            here, there = fork.Pipe(duplex=False)
            process = fork.Process(target=_send, args=(there, work))
            process.start()
            there.close()
            running[here] = name, process, time.monotonic() + SECONDS_OF_ONE
        for here in wait(list(running), timeout=0.5):
            name, process, _ = running.pop(here)
            try:
                result = here.recv()
            except EOFError:
                process.join()
                result = {"error": f"the process ended with {process.exitcode}"}
            process.join()
            yield name, {k: " ".join(v.split()) if isinstance(v, str) else v for k, v in result.items()}
        for here, (name, process, last) in list(running.items()):
            if time.monotonic() > last:
                del running[here]
                process.kill()
                process.join()
                yield name, {"error": f"no end after {SECONDS_OF_ONE} s"}


def about():
    """What GPU this is; "skipped" says why it is none that has tensor maps."""
    try:
        context = CudaContext()
    except NoDevice as e:
        return {"skipped": str(e)}
    if context.capability < 90:
        return {"skipped": f"{context.name} has no tensor maps"}
    return {"gpu": context.name, "driver": context.driver, "target": context.target, "capability": context.capability}


def name_of(kind):
    """A kind in words."""
    words = (kind["phase"] * (kind["phase"] in ("legal", "store")), kind["mode"], kind["op"], NAMES[kind["element"]])
    return " ".join(filter(None, words))


def line_of(result):
    """A result in words."""
    if not result.get("ran") and result["error"]:
        return f"{name_of(result)}: {result['error']}"[:600]
    text = f"{name_of(result)}: {result['ran']} ran, {result['differ']} differ ({result['bytes']} bytes)"
    more = [f"{result['no map']} without a map"] * bool(result["no map"])
    more += [result[k] for k in ("error", "first") if result[k]] + [f"map: {result['map']}"] * bool(result["map"])
    return ", ".join([text, *more])[:1500]


def survey(capability, count, seed, *, end, processes, tell):
    """The results of all kinds: which reductions are legal, loads, stores, and reductions that are legal."""
    results = []
    loads = LOADS + BLACKWELL_LOADS * (capability >= 100)
    stores = STORES + BLACKWELL_STORES * (capability >= 100)

    def kind(phase, mode, op, element):
        return {"phase": phase, "mode": mode, "op": op, "element": element}

    def all_of(kinds):
        works = {name_of(k): partial(in_a_context, k, count, seed) for k in kinds}
        named = {name_of(k): k for k in kinds}
        for name, result in in_processes(works, end, processes):
            results.append({**named[name], "ran": 0, "first": "", **result})
            tell(line_of(results[-1]))

    order = sorted(((op, e) for op in OPERATIONS for e in TYPES), key=lambda pair: not in_the_table(*pair))
    all_of([kind("legal", "tile", op, e) for op, e in order])
    runs = {(r["op"], r["element"]) for r in results if not r["error"] and r["ran"]}
    all_of([kind("load", mode, "", e) for mode in loads for e in TYPES])
    all_of([kind("store", mode, "", e) for mode in stores for e in TYPES])
    all_of([kind("reduce", mode, op, e) for op in OPERATIONS for e in TYPES if (op, e) in runs
            and in_the_table(op, e) for mode in ("tile", "im2col_no_offs")])  # fmt: skip
    return results


def verdict(result):
    """Of a reduction whose legality was looked for: "legal", the name of the CUDA error, or why it is not known."""
    if result["error"]:
        return next((w for w in result["error"].split(": ") if w.startswith("CUDA_ERROR")), result["error"])
    return "legal" if result["ran"] else "no map"


def faults(results):
    """All that ends the script with 1, in words."""
    found = []
    for r in results:
        name, op, element = name_of(r), r["op"], r["element"]
        if r["phase"] == "legal":
            refused = reduction(op, element)
            legal = verdict(r)
            if legal == "legal" and isinstance(refused, str) and in_the_table(op, element):
                found.append(f"{name}: the GPU runs it, and the emulator does not: {refused}")
            elif legal != "legal" and not isinstance(refused, str):
                found.append(f"{name}: the emulator runs it, and the GPU does not: {r['error'] or r['first']}")
            elif legal not in ("legal", "no map") and not legal.startswith("CUDA_ERROR"):
                found.append(f"{name}: {r['error']}")
        elif r["error"] or not r["ran"]:
            found.append(f"{name}: {r['error'] or r['first']}")
        if r.get("bytes"):
            found.append(f"{name}: {r['first']}")
        if r.get("map") and "::w" not in r["mode"]:
            found.append(f"{name}: map: {r['map']}")
    return found


def table(results):
    """The lines of a table of operations and types: legal or the CUDA error; in brackets those that the ISA has not."""
    found = {(r["op"], r["element"]): verdict(r) for r in results if r["phase"] == "legal"}
    lines = ["", "  ".join(f"{word:>6}" for word in ("", *(NAMES[e] for e in TYPES)))]
    others = list(dict.fromkeys(v for v in found.values() if v != "legal"))
    for op in OPERATIONS:
        marks = []
        for e in TYPES:
            mark = "legal" if found[op, e] == "legal" else f"E{others.index(found[op, e])}"
            marks.append(mark if in_the_table(op, e) else f"({mark})")
        lines.append("  ".join(f"{word:>6}" for word in (op, *marks)))
    return [*lines, *(f"E{k}: {v}"[:300] for k, v in enumerate(others)), "(...): not in the table of the ISA", ""]


def layout(context):
    """Lines that tell which bits of a map change with each field of im2col."""
    lines = []
    for shape in ((4, 9, 9, 9, 16), (4, 9, 9, 16), (4, 9, 16)):
        axes = "WHD"[: len(shape) - 2]
        zero, ones = (0,) * len(axes), (1,) * len(axes)
        plain = replace(cases(1, 1, ("im2col",))[0], element=2, swizzle=0, fill=0, tensor=np.zeros(shape, "u4"),
                        size=16, box=(8, 8), lower=zero, upper=zero, steps=ones)  # fmt: skip
        base = int.from_bytes(encoded(context, plain, 0x7F0000000000), "little")
        changes = {"pixels": {"box": (8 ^ 1023, 8)}, "channels": {"box": (8, 256)}, "tiles": {"mode": "tile",
                   "lower": (), "upper": (), "steps": (), "box": (*[1] * (len(shape) - 1), 8)}}  # fmt: skip
        for k, axis in enumerate(axes):
            for corner in ("lower", "upper"):
                changes[f"{corner} {axis}"] = {corner: tuple(-1 if i == k else 0 for i in range(len(axes)))}
            changes[f"step {axis}"] = {"steps": tuple(8 if i == k else 1 for i in range(len(axes)))}
        lines.append(f"a map for im2col of {len(shape)} dimensions: {base.to_bytes(MAP, 'little').hex(' ', 4)}")
        for name, change in changes.items():
            bits = base ^ int.from_bytes(encoded(context, replace(plain, **change), 0x7F0000000000), "little")
            lines.append(f"  {name}: bits {[k for k in range(8 * MAP) if bits >> k & 1]}")
    return lines


def rounded(context, element):
    """What copies of a type make of codes of float32, beside the tensor too: how many codes, and those that differ."""
    count, wrong = 0, []
    for codes in float32_codes():
        for corner, out in (((0, 0), False), ((0, 0), True), ((256, 8), False)):
            tensor = np.zeros_like(codes) if out else codes
            case = Case("tile", element, 0, int(not out), tensor.view("f4"), 256, (8, 256), corner, out=out)
            data = codes.view(np.uint8).reshape(-1) if out else np.zeros(case.bytes, np.uint8)
            after, shared, *_ = ran(context, case, data.copy())
            wanted = stored(case, data).view(np.uint8).reshape(-1) if out else loaded(case)
            rows = (x.view(np.uint32).reshape(-1).tolist() for x in (codes, wanted, after if out else shared))
            count += codes.size
            wrong += [f"{case.mode} {'store' if out else 'load'} at {corner}: {a:#x} is {c:#x}, not {b:#x}"
                      for a, b, c in zip(*rows, strict=True) if b != c]  # fmt: skip
    return {"codes": count, "wrong": wrong}


def main(words):
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=20, help="copies of each mode, operation and type")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", action="store_true", help="print where the driver's map has the fields of im2col")
    parser.add_argument("--rounding", action="store_true", help="only what copies make of float32 and tf32, by edges")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--seconds", type=float, default=100, help="kinds that have not begun by then do not run")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args(words)
    begin = time.monotonic()
    end = begin + args.seconds
    ((_, known),) = in_processes({"": about}, end, 1)
    if "gpu" not in known:
        print(f"skipped: {known['skipped']}" if "skipped" in known else known["error"], flush=True)
        return int("skipped" not in known)
    if args.layout:
        ((_, lines),) = in_processes({"": lambda: {"lines": layout(CudaContext())}}, end, 1)
        print(*lines.get("lines", ["layout: " + lines.get("error", "")]), sep="\n", flush=True)

    def tell(line):
        print(line, flush=True)

    if args.rounding:
        works = {name: partial(lambda e: rounded(CudaContext(), e), e) for e, name in ROUNDED.items()}
        found = dict(in_processes(works, end, args.processes))
        for name, result in found.items():
            wrong = [result["error"]] if result.get("error") else result["wrong"]
            print(
                f"{known['gpu']}: {name}: {result.get('codes', 0)} codes, {len(wrong)} differ", *wrong[:9], sep="\n  "
            )
        return int(any(r.get("error") or r["wrong"] for r in found.values()))
    results = survey(known["capability"], args.cases, args.seed, end=end, processes=args.processes, tell=tell)
    found = faults(results)
    if args.json:
        told = {**known, "seed": args.seed, "results": results, "faults": found}
        args.json.write_text(json.dumps(told, indent=1) + "\n")
    print(*table(results), sep="\n")
    print(
        "behind the fields of the driver's maps:", *sorted({w for r in results for w in r.get("words", [])}), sep="\n  "
    )
    for line in found:
        print(f"FAULT {line}"[:1500])
    ran_, wrong = (sum(r.get(what, 0) for r in results) for what in ("ran", "differ"))
    seconds = time.monotonic() - begin
    print(f"{known['gpu']}, driver {known['driver']}, {known['target']}, seed {args.seed}: {len(results)} kinds, "
          f"{ran_} copies ran, {wrong} differ, {len(found)} faults, {seconds:.0f} s")  # fmt: skip
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
