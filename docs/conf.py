"""The site's configuration. `make docs` builds it: pages written by hand, and the reference, written by `generate`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generate import write_pages

import ptxdiff

project = "ptxdiff"
author = "the ptxdiff authors"
copyright = "the ptxdiff authors"
version = release = ptxdiff.__version__

extensions = ["myst_parser", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "ptxdiff"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2f6f4f", "color-brand-content": "#2f6f4f"},
    "dark_css_variables": {"color-brand-primary": "#79c9a0", "color-brand-content": "#79c9a0"},
}
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
# Lexers of pygments know no PTX.
suppress_warnings = ["misc.highlighting_failure"]

write_pages(Path(__file__).parent / "reference")
