"""No two case files share a paragraph of code.

Code that several case files need is in `references`, `cases/_device` or `cases/_host`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARAGRAPH = 6
"""The least lines of a paragraph; blank lines, comments, docstrings, imports, parameters and lone brackets do not
count."""


def code_lines(text: str) -> list[tuple[int, str]]:
    """The lines with code, each with its number."""
    text = re.sub(r'("""|\'\'\')(?:.|\n)*?\1', lambda m: "\n" * m[0].count("\n") if _is_docstring(m) else m[0], text)
    text = re.sub(r"^( *def \w+\()([^()]*)", lambda m: m[1] + "\n" * m[2].count("\n"), text, flags=re.M)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.partition("  #")[0].strip()
        if bare and not bare.startswith(("#", "from ", "import ")) and not re.fullmatch(r"[\])},({[]+", bare):
            found.append((number, bare))
    return found


def _is_docstring(found: re.Match[str]) -> bool:
    before = found.string[: found.start()].rstrip(" ")
    return before == "" or before.endswith("\n")


def shared(files: dict[str, str]) -> list[str]:
    """Paragraphs that occur in two files, or twice in one file, each with the places where it begins."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, text in files.items():
        lines = code_lines(text)
        for k in range(len(lines) - PARAGRAPH + 1):
            places[tuple(line for _, line in lines[k : k + PARAGRAPH])].append((name, lines[k][0]))
    paragraphs = []
    for paragraph, where in places.items():
        if len(where) > 1:
            paragraphs.append(f"{' and '.join(f'{n}:{line}' for n, line in where)}: {paragraph[0]}")
    return paragraphs


def files_in(*patterns: str) -> dict[str, str]:
    """The texts of the files that match, by name."""
    folder = ROOT / "cases"
    return {str(p.relative_to(folder)): p.read_text() for pattern in patterns for p in sorted(folder.glob(pattern))}


def test_no_two_case_files_share_a_paragraph():
    assert not shared(files_in("*.py", "_host/*.py"))


def test_a_shared_paragraph_is_detected_with_any_code_around_it():
    lines = [f"y{k} = x{k} + {k}" for k in range(PARAGRAPH)]
    one = "import a\n" + "\n".join(lines)
    other = '"""Another."""\n\n' + "\n\n# why\n".join(lines) + "\nend = 1"
    assert shared({"one.py": one, "other.py": other}) == ["one.py:2 and other.py:3: y0 = x0 + 0"]
    assert not shared({"one.py": one, "short.py": "\n".join(lines[:-1])})
