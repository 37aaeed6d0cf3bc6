"""Which wrong barriers of a grid really fail on the GPU here: `python tests/gpu/barrier_loops.py [ROUNDS]`.

The emulator calls each barrier of `WRONG_BARRIERS` a race. Here each runs in a loop of 10^6 rounds on the whole device.
In a round each thread stores the round's number, all blocks meet at the barrier, and each thread reads the word of a
thread of the next block; another number there is a failure. A second barrier, of relaxed accesses, ends the round: it
keeps later stores away from earlier loads, and makes nothing visible, so that it does not help the first one. "warm"
means that each thread reads its neighbour's word before the barrier, too, so that a cache has the old one. Right
barriers run in the same loop, and must not fail. A poll that sees no end gives up after 2^24 attempts ("never ends");
a process that does not answer is killed ("hangs").

A count of 0 does not say that a barrier is right: it says that this GPU did not show the fault in so many rounds.
`--check` needs no GPU: it runs the right ones in the emulator, on few blocks, and assembles all.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.emulator.grid_kernels import RIGHT_BARRIERS, WRONG_BARRIERS

THREADS = 128
LIMIT = 100.0  # seconds of a barrier
POLLS = 1 << 24

LOOP = """.version 8.0
.target {target}
.address_size 64
.visible .entry loop(.param .u64 data, .param .u64 count, .param .u64 ends, .param .u64 out, .param .u32 rounds)
{{
    .reg .pred p, leader;
    .reg .b32 t, b, n, size, i, v, old, round, last, wanted, wrong, polls, given, full, sum;
    .reg .b64 d, c, e, o, at, mine, off;
    ld.param.u64 d, [data];
    ld.param.u64 c, [count];
    ld.param.u64 e, [ends];
    ld.param.u64 o, [out];
    ld.param.u32 last, [rounds];
    mov.u32 t, %tid.x;
    mov.u32 b, %ctaid.x;
    mov.u32 n, %nctaid.x;
    mov.u32 size, %ntid.x;
    setp.eq.u32 leader, t, 0;
    mad.lo.u32 i, b, size, t;
    mul.wide.u32 off, i, 4;
    add.u64 mine, d, off;
    add.u32 b, b, 1;
    rem.u32 b, b, n;
    add.u32 v, t, 1;
    rem.u32 v, v, size;
    mad.lo.u32 i, b, size, v;
    mul.wide.u32 at, i, 4;
    add.u64 at, at, d;
    mov.b32 round, 0;
    mov.b32 wrong, 0;
    mov.b32 given, 0;
    mov.b32 full, 0;
    mov.b32 sum, 0;
ROUND:
    add.u32 round, round, 1;
    add.u32 wanted, full, {wanted};
    add.u32 full, full, n;
    st.global.u32 [mine], round;
    {warm}
    {before}
    @!leader bra JOIN;
    {arrive}
    mov.b32 polls, 0;
SPIN:
    {load}
    add.u32 polls, polls, 1;
    setp.gt.u32 p, polls, {polls};
    @p bra GAVE_UP;
    setp.lt.u32 p, v, wanted;
    @p bra SPIN;
    bra PASSED;
GAVE_UP:
    add.u32 given, given, 1;
PASSED:
    {after}
JOIN:
    {behind}
    ld.global.u32 v, [at];
    setp.ne.u32 p, v, round;
    @p add.u32 wrong, wrong, 1;
    bar.sync 0;
    @!leader bra END;
    {end}
    mov.b32 polls, 0;
WAIT:
    {wait}
    add.u32 polls, polls, 1;
    setp.gt.u32 p, polls, {polls};
    @p bra END;
    setp.lt.u32 p, v, full;
    @p bra WAIT;
END:
    bar.sync 0;
    setp.ne.u32 p, given, 0;
    @p bra OUT;
    setp.lt.u32 p, round, last;
    @p bra ROUND;
OUT:
    red.global.add.u32 [o], wrong;
    red.global.add.u32 [o+4], given;
    red.global.add.u32 [o+8], sum;
    ret;
}}
"""
RELAXED_END = {"end": "atom.add.relaxed.gpu.global.u32 old, [e], 1;", "wait": "ld.relaxed.gpu.global.u32 v, [e];"}
ORDERED_END = {"end": "atom.add.acq_rel.gpu.global.u32 old, [e], 1;", "wait": "ld.acquire.gpu.global.u32 v, [e];"}
WARM = "ld.global.u32 v, [at]; add.u32 sum, sum, v;"


def text_of(parts, target, *, warm=False, blocks=8, end=RELAXED_END, polls=POLLS):
    """The loop's PTX for a barrier."""
    wanted = str(blocks - 1) if parts["wanted"] == "7" else parts["wanted"]
    fields = parts | end | {"wanted": wanted, "warm": WARM if warm else "", "polls": polls, "target": target}
    return LOOP.format(**fields)


def run_here(cubin, blocks, rounds):
    """Runs in the GPU's process: the failures, the polls that saw no end, and the milliseconds."""
    import torch

    from ptxdiff.backends.driver import DriverLaunch, launch_all

    data = torch.zeros(blocks * THREADS, dtype=torch.int32, device="cuda")
    words = torch.zeros(3 * 64, dtype=torch.int32, device="cuda")
    addresses = [data.data_ptr(), words.data_ptr(), words.data_ptr() + 256, words.data_ptr() + 512]
    given = (*(a.to_bytes(8, "little") for a in addresses), rounds.to_bytes(4, "little"))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    launch_all(cubin, [DriverLaunch("loop", (blocks,), (THREADS, 1, 1), 0, given)])
    end.record()
    torch.cuda.synchronize()
    counts = words[128:130].to(torch.int64) & 0xFFFFFFFF  # 32-bit numbers without a sign
    return [*counts.tolist(), begin.elapsed_time(end)]


def barriers():
    """Name, parts, and whether it is right."""
    yield from ((name, parts, True) for name, parts in RIGHT_BARRIERS.items())
    yield from ((name, parts, False) for name, parts in WRONG_BARRIERS.items())


def assembled(text, target):
    """The cubin of a text."""
    from ptxdiff.fuzz.assemblers import assembler
    from ptxdiff.triton.targets import assembler as bundled

    done = assembler(bundled(target).path, 3).assemble(text, target)
    if done.ended != "assembled":
        raise SystemExit(f"{done.ended}: {done.words}")
    return done.cubin


def main(words):
    from ptxdiff.processes.child import DeviceFault, of_target
    from ptxdiff.processes.gpus import gpus

    rounds = int(words[0]) if words else 1_000_000
    gpu = gpus()[0]
    import torch

    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    device, failed_right = of_target(gpu.target), 0
    for name, parts, right in barriers():
        for warm in (False, True):
            try:
                cubin = assembled(text_of(parts, gpu.target, warm=warm, blocks=blocks), gpu.target)
                wrong, given, spent = device.call(
                    "tests.gpu.barrier_loops:run_here", cubin, blocks, rounds, limit=LIMIT
                )
            except (DeviceFault, RuntimeError) as fault:
                words_of, wrong, given, spent = f"hangs: {fault}", 0, 1, 0.0
            else:
                words_of = f"{wrong} words of {rounds * blocks * THREADS:.3g} are old" if wrong else "no failure"
                words_of += f", a poll never ends ({given} blocks)" if given else ""
            failed_right += right and bool(wrong or given)
            kind = "right" if right else "wrong"
            print(f"{kind:5} {name:24} {'warm' if warm else 'cold'}: {words_of}; {spent:.0f} ms", flush=True)
            entry = {"barrier": name, "right": right, "warm": warm, "wrong": wrong, "gave up": given, "rounds": rounds}
            print("  " + json.dumps(entry | {"device": gpu.name, "blocks": blocks, "threads": THREADS}))
    if failed_right:
        print(f"{failed_right} loops of right barriers failed: the loop itself is wrong, and nothing above counts")
    return int(failed_right > 0)


def check():
    """Run right barriers in the emulator, and assemble all of them."""
    import numpy as np

    from ptxdiff.emulator import Buffer, load_kernel, run_kernel

    for name, parts, right in barriers():
        assembled(text_of(parts, "sm_90a", warm=True), "sm_90a")
        if not right:
            continue
        out, count, ends = np.zeros(3, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
        buffers = [Buffer(np.zeros(8 * 64, np.uint32), "data"), Buffer(count, "count"), Buffer(ends, "ends")]
        text = text_of(parts, "sm_90a", end=ORDERED_END)
        run_kernel(load_kernel(text), [*buffers, Buffer(out, "out"), 3], (8,), num_threads=64)
        print(f"{name}: {out[0]} wrong, {out[1]} given up, {count[0]} arrivals of {3 * 8}")
        assert (out[:2] == 0).all()
        assert count[0] == 24


if __name__ == "__main__":
    sys.exit(check() if "--check" in sys.argv else main(sys.argv[1:]))
