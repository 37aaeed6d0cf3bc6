"""Proxy fences count only on the way from a write to the copy or product that needs them (PTX ISA 8.9)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from ptxdiff.emulator.kernel.memory.happens_before import HappensBefore
from ptxdiff.emulator.kernel.memory.space import Shared
from tests.support.sampling import sizes

UNIT, SIZE, BLOCK = 4, 256, 96


@dataclass
class Model:
    """The definition, without shortcuts: each unit's last write, and each fence of a lane with what the lane knew."""

    order: HappensBefore
    writes: dict[int, tuple[int, int]] = field(default_factory=dict)
    fences: list[tuple[int, int, np.ndarray]] = field(default_factory=list)

    def known(self, lane: int) -> np.ndarray:
        return self.order.components(np.array([lane]), np.arange(self.order.team)[None])[0]

    def fence(self, lanes: np.ndarray) -> None:
        """A lane knows its own past, too."""
        for lane in lanes.tolist():
            knew = self.known(lane)
            knew[lane % self.order.team] = self.order.clock + 1
            self.fences.append((lane, self.order.clock, knew))

    def lacks(self, lane: int, unit: int) -> bool:
        """Whether no fence happens after the last write and before the lane."""
        components, team = self.known(lane), self.order.team
        seen = [
            knew for who, when, knew in self.fences if who // team == lane // team and when < components[who % team]
        ]  # fmt: skip
        member, when = self.writes[unit]
        return not any(when < knew[member] for knew in seen)


@pytest.mark.sample(2)
@pytest.mark.parametrize("exact", [True, False], ids=["parts of blocks meet", "whole blocks meet"])
@pytest.mark.parametrize("blocks", [1, 2], ids=["a block a team", "a cluster"])
@pytest.mark.parametrize("trials", sizes(8, 25))
def test_a_write_is_visible_only_behind_a_fence_that_the_lane_waited_for(exact: bool, blocks: int, trials: int) -> None:
    rng, lacked, visible = np.random.default_rng(3), 0, 0
    for _trial in range(trials):
        order = HappensBefore(2 * BLOCK, BLOCK, BLOCK * blocks, BLOCK * blocks, exact=exact)
        shared, model = Shared(2, SIZE, UNIT, True, order), Model(order)
        for _step in range(30):
            block = int(rng.integers(2))
            some = np.sort(rng.choice(BLOCK, rng.integers(1, 40), replace=False)) + BLOCK * block
            action = rng.random()
            if action < 0.3:
                mask = np.arange(2 * BLOCK) // BLOCK == block
                if exact and action < 0.2:
                    order.barrier(some)
                else:
                    (order.warp_barriers if action < 0.25 else order.block_barriers)(mask)
            elif action < 0.55:
                shared.fence(some)
                model.fence(some)
                order.tick()
            else:
                size = int(rng.choice([4, 16]))
                places = rng.permutation(SIZE // size)[: len(some)]  # one thread a place, so that its writer is known
                some = some[: len(places)]
                offsets = places * size + block * SIZE
                shared.note_write(offsets, size, some, np.zeros(len(some), np.bool_))
                order.tick()
                for units, lane in zip(shared.units(offsets, size).tolist(), some.tolist(), strict=True):
                    for unit in units:
                        model.writes[unit] = lane % order.team, order.clock - 1
        for lane in rng.choice(2 * BLOCK, 12, replace=False).tolist():
            team = lane // order.team
            units = np.arange(SIZE // UNIT * blocks) + team * blocks * (SIZE // UNIT)
            found = shared.unfenced([lane], units[:, None])
            for unit, bad in zip(units.tolist(), found.tolist(), strict=True):
                lacks = unit in model.writes and model.lacks(lane, unit)
                assert bad == lacks
                lacked, visible = lacked + lacks, visible + (not lacks and unit in model.writes)
    assert min(lacked, visible) > 8 * trials
