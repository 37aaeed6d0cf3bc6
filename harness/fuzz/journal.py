"""The journal of a campaign: its plan, then a line for each finished piece of work, to continue a stopped campaign."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class CampaignJournal:
    """The journal of the campaign with this plan. Raises ValueError for a file of another plan.

    path: of the file; it and its folders are created if missing. plan: the plan's identity, of JSON values.
    """

    def __init__(self, path: Path, plan: Any) -> None:
        self.path = path
        self.earlier: list[dict[str, Any]] = []
        """The lines that the file had before, without the plan."""
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.note({"plan": plan})
            return
        first, *self.earlier = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if first.get("plan") != plan:
            raise ValueError(f"{path} belongs to another campaign ({first.get('plan')}); choose another folder")

    def note(self, line: Mapping[str, Any]) -> None:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
