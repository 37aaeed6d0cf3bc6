"""The journal of a campaign: its plan, then a line for each piece of work, so that a stopped campaign goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class CampaignJournal:
    """The journal of the campaign with this plan. Raises ValueError for a file of another plan.

    path: of the file, which is begun, with its folders, where there is none. plan: its identity, as JSON gives it back.
    """

    def __init__(self, path: Path, plan: Any) -> None:
        self.path = path
        self.earlier: list[dict[str, Any]] = []
        """The lines of an earlier start, without the plan."""
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.note({"plan": plan})
            return
        first, *self.earlier = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if first.get("plan") != plan:
            raise ValueError(f"{path} is of another campaign ({first.get('plan')}); name another folder")

    def note(self, line: Mapping[str, Any]) -> None:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
