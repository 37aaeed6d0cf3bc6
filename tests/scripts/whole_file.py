"""A file of Triton as people write them for a GPU: it asks what GPU there is, and importing it launches kernels.

`tests/scripts/test_emulating.py` runs it as it is. `FOUND` is what it found and computed.
"""

import torch
import triton
import triton.language as tl
import triton.profiler as proton
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = triton.runtime.driver.active.get_active_torch_device()
CAPABILITY = torch.cuda.get_device_capability()
PROCESSORS = torch.cuda.get_device_properties("cuda").multi_processor_count


def sized(nargs):
    if isinstance(nargs["x"], TensorDescriptor):
        nargs["x"].block_shape = [nargs["BLOCK"], nargs["BLOCK"]]


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 256}, num_stages=4, pre_hook=sized),  # a static_assert refuses it
        triton.Config({"BLOCK": 32}, num_stages=2, num_warps=2, pre_hook=sized),
        triton.Config({"BLOCK": 64}, num_stages=2, pre_hook=sized),
    ],
    key=["n"],
    reset_to_zero=["y"],
)
@triton.jit
def gram(x, y, n, BLOCK: tl.constexpr):
    """y += x @ x.T for n rows of 64, over the columns in pieces; x: a descriptor of the host."""
    tl.static_assert(BLOCK <= 64)
    at = tl.program_id(0) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, 64, BLOCK):
        total = tl.dot(x.load([at, k]), x.load([0, k]).T, total)
    rows, columns = at + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    there = y + rows[:, None] * BLOCK + columns[None, :]
    tl.store(there, tl.load(there) + total)


@triton.jit
def doubled(table, sizes, count, BLOCK: tl.constexpr):
    """Doubles each of the float32 arrays whose addresses stand in a table."""
    which = tl.program_id(0)
    array = tl.load(table + which).to(tl.pointer_type(tl.float32))
    there = array + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < tl.load(sizes + which)
    tl.store(there, tl.load(there, mask=mask) * 2, mask=mask)


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["n"], x_vals=[1 << 30], line_arg="provider", line_vals=["triton"], line_names=["Triton"],
        plot_name="never", args={},
    )
)  # fmt: skip
def measured(n, provider):
    raise AssertionError("a benchmark ran")


def products(n=64):
    x = torch.randn((n, 64), device=DEVICE, dtype=torch.float16)
    y = torch.full((n, 32), 7.0, device="cuda")
    gram[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](TensorDescriptor.from_tensor(x, [1, 1]), y, n)
    return x, y


def tables(sizes=(3, 40, 64), said=None, block=64):
    arrays = [torch.arange(size, dtype=torch.float32, device="cuda") for size in sizes]
    addresses = torch.tensor([array.data_ptr() for array in arrays], device=DEVICE)
    lengths = torch.tensor(said or sizes, dtype=torch.int32).cuda()
    doubled[(len(sizes),)](addresses, lengths, len(sizes), BLOCK=block)
    return arrays


@proton.profile(name="decorated")
def profiled():
    with proton.scope("tables", {"bytes": 4}):
        return tables(sizes=(1,))


SESSION = proton.start("tables", hook="triton")
proton.deactivate(SESSION)
proton.activate(SESSION)
FOUND = {
    "capability": CAPABILITY,
    "products": products(),
    "tables": tables(),
    "config": gram.best_config.kwargs,
    "time": triton.testing.do_bench(lambda: tables(sizes=(1,)), quantiles=[0.5, 0.2]),
    "profiled": profiled(),
}
proton.finalize()
measured.run(show_plots=True, print_data=True)
