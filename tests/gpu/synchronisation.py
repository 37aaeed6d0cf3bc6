"""What the GPU here makes of the tests' kernels with barriers and exchanges: `python tests/gpu/synchronisation.py`.

The right twins of `test_synchronisation_mistakes`, and exchanges of a warp with a mask for each group of lanes, must
end and give the emulator's words; else the exit code is 1. With `--wrong` the wrong twins run too. What they give is
only printed: a wrong kernel may happen to give the right words. One that does not end within `LIMIT` is killed.
`--check` needs no GPU: it runs the right ones in the emulator and assembles all.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.emulator.kernel.memory import test_synchronisation_mistakes as mistakes
from tests.emulator.kernel.warp.test_activemask import EACH, GROUPS
from tests.emulator.kernel.warp.test_membership_masks import HALVES, IN_TWO_PLACES, SWAP
from tests.support.emulator import one_warp

LIMIT = 5.0  # seconds of a kernel, beyond the start of the process that owns the GPU
TARGET = "sm_90a"
ELECT = "elect.sync %r3|%p2, -1; selp.b32 %r4, 100, 0, %p2; add.u32 %r3, %r3, %r4;"
EXCHANGES = {
    **{f"{name} of two groups": GROUPS + instruction for name, (instruction, _, _) in EACH.items()},
    **{
        name: HALVES.format(first=first, second=second, after=after + " mov.u32 %r3, %r1; " + SWAP)
        for name, (first, second, after) in IN_TWO_PLACES.items()
    },
    "elect at two places": HALVES.format(first=ELECT, second=ELECT, after=""),
    "elect behind an exit": f"mov.u32 %r3, 7; {one_warp.STORE} setp.lt.u32 %p1, %r1, 3; @%p1 exit; {ELECT}",
    "ballot behind an exit": f"mov.u32 %r3, 7; {one_warp.STORE} setp.ge.u32 %p1, %r1, 20; @%p1 exit; "
    "vote.sync.ballot.b32 %r3, 1, -1;",
}
ANY_LAST = {
    "the first of all takes what the others stored",
    "an acquiring operation whose result nobody looks at",
    "a relaxed ticket",
    "a ticket that only releases",
}
"""Kernels in which the thread that comes last reads its partner's word: thread 127 in the emulator, any on a GPU."""
GIVEN = 1000 + np.arange(mistakes.THREADS + 1, dtype=np.uint32)
GIVEN[-1] = 0


def kernels(wrong):
    """Name, PTX, blocks, threads, the words that a kernel reads, those that the right one gives, and whether it is."""
    for name, body in EXCHANGES.items():
        body += one_warp.STORE
        expected = one_warp.one_warp(body, one_warp.LANES, target=TARGET)
        text = one_warp.HEAD.format(target=TARGET, body=body).replace(".version 9.0", ".version 8.6")
        yield name, text, 1, 32, one_warp.LANES, expected, True
    for pair in mistakes.PAIRS:
        for body, right in ((pair.right, True), *([(pair.wrong, False)] if wrong else [])):
            text = mistakes.module_of(pair, body)
            words = np.broadcast_to(pair.expected, pair.blocks * mistakes.THREADS).astype(np.uint32)
            yield pair.name, text, pair.blocks, mistakes.THREADS, GIVEN, words, right


def run_here(cubin, blocks, threads, given, first):
    """Runs in the GPU's process: the words that a kernel writes. first: whether they are its first parameter."""
    import torch

    from ptxdiff.backends.driver import DriverLaunch, launch_all

    memory = torch.from_numpy(given.astype(np.int64)).to(torch.int32).cuda()
    out = torch.zeros(blocks * threads, dtype=torch.int32, device="cuda")
    addresses = [t.data_ptr().to_bytes(8, "little") for t in ((out, memory) if first else (memory, out))]
    torch.cuda.synchronize()
    launch_all(cubin, [DriverLaunch("k", (blocks,), (threads, 1, 1), 1024, tuple(addresses))])
    return out.cpu().numpy().view(np.uint32)


def assembled(text):
    from ptxdiff.fuzz.assemblers import assembler
    from ptxdiff.triton.targets import assembler as bundled

    done = assembler(bundled(TARGET).path, 3).assemble(text, TARGET)
    return done.cubin, done.words


def is_right(name, found, expected):
    """Whether a kernel's words are those that it must give."""
    if name in ANY_LAST:
        lasts = range(mistakes.THREADS)
        return any((found == np.where(np.arange(len(found)) == t, mistakes.PARTNER, 0)).all() for t in lasts)
    return bool((found == expected).all())


def main(words):
    from ptxdiff.processes.child import DeviceFault, of_target

    device, failed, count = None if "--check" in words else of_target(TARGET), 0, 0
    if device is None and "--check" not in words:
        raise SystemExit(f"no GPU of {TARGET} here")
    for name, text, blocks, threads, given, expected, right in kernels("--wrong" in words):
        (cubin, refused), count = assembled(text), count + 1
        if device is None and cubin:
            continue
        try:
            if not cubin:
                raise RuntimeError(f"not assembled: {refused}")
            place = "tests.gpu.synchronisation:run_here"
            found = device.call(place, cubin, blocks, threads, given, threads != 32, limit=LIMIT)
        except (DeviceFault, RuntimeError) as fault:
            said = str(fault).splitlines()[0]
        else:
            said = "the emulator's words" if is_right(name, found, expected) else "other words"
        failed += right and said != "the emulator's words"
        print(f"{'right' if right else 'wrong'} {name}: {said}", flush=True)
    print(f"{count} kernels, {failed} right ones failed" + (", none of them on a GPU" if device is None else ""))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
