"""Times of the same kernels on this GPU by each method of timing: `python tests/gpu/timing_methods.py`.

These times are the reasons for how `ptxdiff.timing` measures. For an empty kernel, a reciprocal and a copy at several
sizes the script prints the median and the spread (half the interquartile range) by: events around a launch that was
queued behind the flush (direct, and as the replay of a graph), CUPTI's own record of the same launches through
torch.profiler, do_bench, and replays of a graph without a flush; with --proton instead, CUPTI's record through Proton.
Then it prints the times with other ways of flushing the L2. Proton needs a run of its own because CUPTI serves one
profiler a process.
"""

import contextlib
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import triton
import triton.language as tl

LAUNCHES = 60
SLEEP = 2_000_000  # cycles, about a millisecond; meanwhile the host queues the launches


@triton.jit
def empty():
    pass


@triton.jit
def reciprocal(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 1.0 / tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def arms(sizes):
    """Name to (bytes moved, launch)."""
    found = {"empty": (0, lambda: empty[(1,)]())}
    for n in sizes:
        x, y = torch.rand(n, device="cuda") + 1, torch.empty(n, device="cuda")
        for block in (1024, 2048):
            grid = (triton.cdiv(n, block),)
            found[f"rcp {n:,} block {block}"] = (
                8 * n,
                lambda x=x, y=y, n=n, g=grid, b=block: reciprocal[g](x, y, n, BLOCK=b),
            )
        grid = (triton.cdiv(n, 1024),)
        found[f"copy {n:,} triton"] = (8 * n, lambda x=x, y=y, n=n, g=grid: copy[g](x, y, n, BLOCK=1024))
        found[f"copy {n:,} torch"] = (8 * n, lambda x=x, y=y: y.copy_(x))
    return found


def graphed(launch):
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph.replay


def queued(launch, flush, count=LAUNCHES):
    """Seconds of each launch by events; everything is queued while the device sleeps."""
    found = []
    for _ in range(count // 20):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(20)]
        torch.cuda._sleep(SLEEP)
        for begin, end in events:
            flush()
            begin.record()
            launch()
            end.record()
        torch.cuda.synchronize()
        found += [b.elapsed_time(e) / 1e3 for b, e in events]
    return found


def profiled(launch, flush):
    """Seconds of each launch by events, and seconds of the same launches by CUPTI's record."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        by_event = queued(launch, flush)
    kernels = [e for e in recorded.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    kernels.sort(key=lambda e: e.time_range.start)
    ours = [k for k in kernels if "spin" not in k.name and not is_flush(k.name)]
    return by_event, [k.time_range.elapsed_us() / 1e6 for k in ours]


def is_flush(name):
    return any(word in name for word in ("FillFunctor", "Memset", "reduce"))


def protons(launch, flush):
    """CUPTI's record through Proton, one scope a launch."""
    import triton.profiler as proton

    with tempfile.TemporaryDirectory() as folder:
        name = str(Path(folder) / "timing")
        session = proton.start(name)
        for n in range(LAUNCHES):
            flush()
            with proton.scope(f"launch {n}"):
                launch()
            if n % 20 == 19:
                torch.cuda.synchronize()
        proton.finalize(session)
        tree = json.loads(Path(f"{name}.hatchet").read_text())
    found = []

    def walk(node, inside):
        inside = inside or node["frame"]["name"].startswith("launch ")
        if inside and node["metrics"].get("time (ns)"):
            found.append(node["metrics"]["time (ns)"] / 1e9)
        for child in node["children"]:
            walk(child, inside)

    walk(tree[0], False)
    return found


def unflushed(launch):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            launch()
    return [t / 20 for t in queued(graph.replay, lambda: None, 40)]


def summary(times):
    if len(times) < 4:
        return f"{len(times)} samples"
    low, middle, high = statistics.quantiles(times, n=4)
    return f"{middle * 1e6:9.2f} ±{(high - low) * 5e5:5.2f}"


def flushes(l2):
    buffers = {m: torch.empty(m * l2 // 4, dtype=torch.int32, device="cuda") for m in (1, 2, 4)}
    return {
        "none": lambda: None,
        **{f"zero {m}x": b.zero_ for m, b in buffers.items()},
        "read 2x": lambda: torch.amax(buffers[2]),
        "read 4x": lambda: torch.amax(buffers[4]),
        "zero 2x, read 2x": lambda: (buffers[2].zero_(), torch.amax(buffers[4][: 2 * l2 // 4])),
    }


def main(words):
    device = torch.cuda.get_device_properties(0)
    print(device.name, "L2", device.L2_cache_size, "torch", torch.__version__, "triton", triton.__version__)
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        print("idle", pynvml.nvmlDeviceGetClockInfo(handle, 1), pynvml.nvmlDeviceGetClockInfo(handle, 2),
              pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle), device.uuid)  # fmt: skip
    ways = flushes(device.L2_cache_size)
    flush = ways["zero 2x"]
    found = arms([1 << 16, 1 << 20, 1 << 22, 1 << 25, 1 << 28])
    for _, launch in found.values():
        launch()
    started = time.time()
    while time.time() - started < 1:
        queued(found["empty"][1], flush, 20)
    with contextlib.suppress(Exception):
        print("warm", pynvml.nvmlDeviceGetClockInfo(handle, 1), pynvml.nvmlDeviceGetClockInfo(handle, 2),
              pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))  # fmt: skip
    if "--proton" in words:
        for name, (_, launch) in found.items():
            print(f"{name:34}", summary(protons(launch, flush)), flush=True)
        return
    print(f"{'microseconds':34} {'event':>16} {'cupti':>16} {'event, graph':>16} "
          f"{'do_bench':>16} {'no flush':>16}  copy-rate by cupti")  # fmt: skip
    for name, (moved, launch) in found.items():
        replay = graphed(launch)
        by_event, by_cupti = profiled(launch, flush)
        by_graph = queued(replay, flush)
        bench = triton.testing.do_bench(launch, warmup=10, rep=40, return_mode="all")
        columns = (by_event, by_cupti, by_graph, [b / 1e3 for b in bench], unflushed(launch))
        rate = moved / statistics.median(by_cupti or by_event) / 1e12
        print(f"{name:34}", *map(summary, columns), f" {rate:.2f} TB/s", flush=True)
    for name in ("empty", f"rcp {1 << 16:,} block 1024", f"rcp {1 << 25:,} block 1024"):
        values = queued(graphed(found[name][1]), flush, 400)
        ticks = sorted({round(v * 1e9) for v in values})
        gaps = [b - a for a, b in itertools.pairwise(ticks)]
        print(name, "events: distinct values", len(ticks), "of", len(values), "least gap", min(gaps, default=0), "ns")
        by_cupti = profiled(found[name][1], flush)[1]
        ticks = sorted({round(v * 1e9) for v in by_cupti})
        gaps = [b - a for a, b in itertools.pairwise(ticks)]
        print(name, "cupti: distinct values", len(ticks), "of", len(by_cupti), "least gap", min(gaps, default=0), "ns")
    print("by the way of flushing, events around graph replays:")
    for way, function in ways.items():
        row = [summary(queued(graphed(found[n][1]), function)) for n in found if "block 1024" in n or "copy" in n]
        print(f"{way:20}", *row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
