"""Records of loops timed in registers."""

from ptxdiff.records import InRegisters, Key


def loop(variant="rcp", mode="throughput", clocks=256.0, *, spread=0.001, **more):
    """A record whose samples are within `spread` of its median."""
    key = Key("rcp", variant, "sm_90a", "gpu", shape=mode, num_warps=16, context="held")
    samples = tuple(clocks * (1 + spread * (k - 10) / 10) for k in range(21))
    said = {"noise": 0.003, "opcodes": {"MUFU.RCP": 1.0, "LOP3.LUT": 1.0}, "bytes": 8.0, "bytes_per_clock": 16.0}
    return InRegisters(
        key, 4096, samples, clocks, samples[5], samples[15], **{**said, "megahertz": 1755.0, "device": "GPU-1", **more}
    )


def untimed(variant="rcp", words="the loop holds LDG.E"):
    return InRegisters(loop(variant).key, words=words)
