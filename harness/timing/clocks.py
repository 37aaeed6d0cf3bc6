"""The device's clocks while it is timed, and whether something held them down. Through NVML, or nvidia-smi."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import warnings
from dataclasses import dataclass, field
from typing import Any

# nvml.h, nvmlClocksEventReason*. Those left out are no limits: idle, a clock that somebody set, another GPU's.
LIMITS = {
    0x04: "power cap", 0x08: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)",
    0x80: "power brake",
}  # fmt: skip
_SM, _MEMORY = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM


@dataclass(frozen=True)
class Reading:
    """The clocks at one moment in MHz, and the reasons that hold them down."""

    sm: int
    memory: int
    reasons: int = 0


@dataclass
class Clocks:
    """The clocks of one device; nothing is known of them where neither NVML nor nvidia-smi answers.

    uuid: as NVML names it, `GPU-...`.
    """

    uuid: str
    readings: list[Reading] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._nvml = _nvml(self.uuid)

    def read(self) -> None:
        """Take a reading, while the device is busy or has just been."""
        found = _by_nvml(*self._nvml) if self._nvml else _by_command(self.uuid) if len(self.readings) < 2 else None
        if found is not None:
            self.readings.append(found)

    @property
    def summary(self) -> dict[str, int]:
        """Lowest and highest SM clock and the memory's, MHz; empty where nothing is known."""
        if not self.readings:
            return {}
        sm = [r.sm for r in self.readings]
        return {"sm_min": min(sm), "sm_max": max(sm), "memory": min(r.memory for r in self.readings)}

    @property
    def limits(self) -> tuple[str, ...]:
        """What held the clocks down at any reading."""
        seen = 0
        for reading in self.readings:
            seen |= reading.reasons
        return tuple(name for bit, name in LIMITS.items() if seen & bit)


def _nvml(uuid: str) -> tuple[Any, Any] | None:
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old package of that name announces its end
        pynvml = importlib.import_module("pynvml")  # installed or not, and without type information
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
    for query in (fields, fields.replace("event", "throttle")):  # the older name
        words = ["nvidia-smi", "-i", uuid, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=10)
            if done.returncode == 0:
                sm, memory, reasons = done.stdout.strip().split(",")
                return Reading(int(sm), int(memory), int(reasons, 16))
    return None
