"""The device's clocks during a timing, and reasons why they were reduced, from NVML or nvidia-smi."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import warnings
from dataclasses import dataclass, field
from typing import Any

# nvml.h, nvmlClocksEventReason*. Others are not limits: idle, a clock that a user set, another GPU's.
LIMITS = {
    0x04: "power cap", 0x08: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)",
    0x80: "power brake",
}  # fmt: skip
_SM, _MEMORY = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM


@dataclass(frozen=True)
class Reading:
    """The clocks at one moment in MHz, and the reasons why they are reduced."""

    sm: int
    memory: int
    reasons: int = 0


@dataclass
class Clocks:
    """The clocks of one device; unknown if neither NVML nor nvidia-smi works.

    uuid: as NVML names it, `GPU-...`.
    """

    uuid: str
    readings: list[Reading] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._nvml = _nvml(self.uuid)

    def read(self) -> None:
        """Take a reading while the device is busy or shortly after."""
        found = _by_nvml(*self._nvml) if self._nvml else _by_command(self.uuid) if len(self.readings) < 2 else None
        if found is not None:
            self.readings.append(found)

    @property
    def summary(self) -> dict[str, int]:
        """Lowest and highest SM clock, and the memory's clock, in MHz; empty if unknown."""
        if not self.readings:
            return {}
        sm = [r.sm for r in self.readings]
        return {"sm_min": min(sm), "sm_max": max(sm), "memory": min(r.memory for r in self.readings)}

    @property
    def limits(self) -> tuple[str, ...]:
        """The reasons why the clocks were reduced at any reading."""
        seen = 0
        for reading in self.readings:
            seen |= reading.reasons
        return tuple(name for bit, name in LIMITS.items() if seen & bit)


def _nvml(uuid: str) -> tuple[Any, Any] | None:
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old package of that name warns that it is deprecated
        pynvml = importlib.import_module("pynvml")  # may be missing, and has no type information
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return None


def _by_nvml(nvml: Any, handle: Any) -> Reading | None:
    with contextlib.suppress(Exception):
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons  # its name until NVML 12
        return Reading(
            nvml.nvmlDeviceGetClockInfo(handle, _SM), nvml.nvmlDeviceGetClockInfo(handle, _MEMORY), reasons(handle)
        )
    return None


def _by_command(uuid: str) -> Reading | None:
    fields = "clocks.sm,clocks.mem,clocks_event_reasons.active"
    for query in (fields, fields.replace("event", "throttle")):  # the second spelling is the older name
        words = ["nvidia-smi", "-i", uuid, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=10)
            if done.returncode == 0:
                sm, memory, reasons = done.stdout.strip().split(",")
                return Reading(int(sm), int(memory), int(reasons, 16))
    return None
