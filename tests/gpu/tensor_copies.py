"""Run bulk tensor copies on the GPU here and compare with the specification: `python tests/gpu/tensor_copies.py`.

Copies of tiles and of columns of pixels (im2col) to shared memory, copies from it, and reductions of all kinds, by maps
that the driver makes (cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col). The driver compiles the PTX. On Blackwell also
rows (gather4, scatter4) and columns along W without a halo. `--layout` prints which bits of the driver's map a field of
im2col has. Ends with 1 if a bit differs, and with 0 and a reason where no GPU has tensor maps.
"""

import argparse
import ctypes
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ptxdiff.conformance.fetch import CudaContext, CudaError, NoDevice
from tests.support.emulator.tensor_copies import OPERATIONS, THREADS, cases, loaded, numbers, stored

ELEMENTS = {9: 8, 10: 9}
"""By the code of PTX: that of the driver, where it is another one (float64, bfloat16)."""
GUARD = 256
MAP = 128
HOPPER = [("im2col", ""), ("tile", ""), ("im2col_no_offs", ""),
          *((mode, op) for op in OPERATIONS for mode in ("tile", "im2col_no_offs"))]  # fmt: skip
BLACKWELL = [("tile::gather4", ""), ("tile::scatter4", ""), ("im2col::w", ""), ("im2col::w::128", "")]


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
    """The bytes of the tensor and those behind the pointer, after the kernel; guard zones around both must stay."""
    arrays = [case.tensor.view(np.uint8).reshape(-1), data]
    pointers = []
    try:
        for array in arrays:
            pointers.append(context.allocate(array.nbytes + 2 * GUARD))
            guard = np.full(GUARD, 0xA5, np.uint8)
            context.upload(pointers[-1], np.concatenate([guard, array, guard]))
        values = [ctypes.create_string_buffer(encoded(context, case, pointers[0] + GUARD), MAP),
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
        context._call("cuModuleUnload", module)
        return after
    finally:
        for pointer in pointers:
            context.free(pointer)


def differences(context, case):
    """How many bytes differ from the specification: in the tensor and in shared memory."""
    stores = bool(case.op) or case.mode in ("im2col_no_offs", "tile::scatter4")
    rng = np.random.default_rng(case.bytes)
    data = np.full(case.bytes, 0xA5, np.uint8)
    if stores:
        data = numbers(rng, case.element, (case.bytes // case.tensor.itemsize,)).view(np.uint8).copy()
    tensor, shared = ran(context, case, data)
    wanted = stored(case, data) if stores else case.tensor
    return int((tensor != wanted.view(np.uint8).reshape(-1)).sum()) + int(
        (shared != (data if stores else loaded(case))).sum()
    )


def measured(context, count, seed):
    """By mode and operation: copies that ran, that differ, and that the driver's encoder refuses; the first few."""
    total, first = Counter(), []
    kinds = HOPPER + (BLACKWELL if context.capability >= 100 else [])
    for mode, op in kinds:
        for case in cases(count, seed, (mode,), op):
            name = f"{mode} {op}".strip()
            try:
                wrong = differences(context, case)
            except MapRefused as e:
                total[name, "no map"] += 1
                first.append(str(e))
                continue
            except CudaError as e:  # nothing runs in this process any more
                raise SystemExit(f"{name}: {e}: {case}") from None
            total[name, "ran"] += 1
            if wrong:
                total[name, "differ"] += 1
                first.append(f"{wrong} bytes of {name}: {case}")
    return total, first


def layout(context):
    """Which bits of a map change with each field of im2col."""
    from dataclasses import replace

    plain = replace(cases(1, 1, ("im2col",))[0], element=2, swizzle=0, fill=0, tensor=np.zeros((4, 9, 9, 9, 16), "u4"),
                    size=16, box=(8, 8), lower=(0, 0, 0), upper=(0, 0, 0), steps=(1, 1, 1))  # fmt: skip
    base = int.from_bytes(encoded(context, plain, 0x7F0000000000), "little")
    changes = {"pixels": {"box": (8 ^ 1023, 8)}, "channels": {"box": (8, 256)}, "tiles": {"mode": "tile", "lower": (),
               "upper": (), "steps": (), "box": (1, 1, 1, 1, 8)}}  # fmt: skip
    for k, axis in enumerate("WHD"):
        for corner in ("lower", "upper"):
            changes[f"{corner} {axis}"] = {corner: tuple(-1 if i == k else 0 for i in range(3))}
        changes[f"step {axis}"] = {"steps": tuple(8 if i == k else 1 for i in range(3))}
    print("a map for im2col:", base.to_bytes(MAP, "little").hex(" ", 4))
    for name, change in changes.items():
        bits = base ^ int.from_bytes(encoded(context, replace(plain, **change), 0x7F0000000000), "little")
        print(f"  {name}: bits {[k for k in range(8 * MAP) if bits >> k & 1]}")


def main(words):
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=150, help="copies of each mode and operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", action="store_true", help="print where the driver's map has the fields of im2col")
    args = parser.parse_args(words)
    try:
        context = CudaContext()
    except NoDevice as e:
        print(f"skipped: {e}")
        return 0
    if context.capability < 90:
        print(f"skipped: {context.name} has no tensor maps")
        return 0
    if args.layout:
        layout(context)
    begin = time.monotonic()
    total, first = measured(context, args.cases, args.seed)
    for line in first[:6]:
        print(line[:2000])
    for name in dict.fromkeys(name for name, _ in total):
        ran_, wrong, refused = (total[name, what] for what in ("ran", "differ", "no map"))
        print(f"{name}: {ran_} ran, {wrong} differ, {refused} without a map")
    seconds = time.monotonic() - begin
    print(f"{context.name}, driver {context.driver}, {context.target}, seed {args.seed}, {seconds:.0f} s")
    return int(any(what == "differ" for _, what in total))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
