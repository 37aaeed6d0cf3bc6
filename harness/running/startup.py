"""What a run of cases alone is spared: garbage collections of what stays, and the summary of hypothesis."""

from __future__ import annotations

import sys

import pytest

from ptxdiff.processes.threads import collect_seldom
from ptxdiff.running.collection import VariantItem

SUMMARY = "hypothesispytest"
"""The plugin that imports hypothesis at the end of every run, which takes half a second."""


def spare(session: pytest.Session) -> None:
    """Change this process for the items of cases that it is about to run. With tests among them, change nothing."""
    if not session.items or not all(isinstance(item, VariantItem) for item in session.items):
        return
    collect_seldom()
    plugins = session.config.pluginmanager
    if "hypothesis" not in sys.modules and plugins.has_plugin(SUMMARY):
        plugins.unregister(name=SUMMARY)
