"""Escapes texts of records for each medium that shows them, one function for each medium.

Names, words and messages come from case files, compilers, and records of other machines. Without escaping they could
move a terminal's cursor, reorder the text that a reader sees, give a command to the CI system that shows the log, be a
formula in a spreadsheet, or be markup in a page.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any, ClassVar

# Control characters except newline and tab; characters that reorder or hide text (Unicode TR 36, bidirectional and
# invisible characters); separators at which some readers end a line; halves of surrogate pairs.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Text whose control, bidirectional and invisible characters are written as escapes; newlines and tabs stay."""
    return _UNSEEN.sub(lambda m: _escape(m[0]), text)


def line(text: str) -> str:
    """As `visible`, on one line: newlines and tabs are escaped too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _escape(character: str) -> str:
    code = ord(character)
    if character == "\r":
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# GitHub's runner takes a line as a command if it begins with `::` after white space, or has `##[` anywhere
# (actions/runner, ActionCommand.cs). Azure's `##vso[` and TeamCity's `##teamcity[` are of the second kind.
_COMMAND_LINE = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_COMMAND_ANYWHERE = re.compile(r"##(?=\w*\[)")


def guarded(text: str) -> str:
    """Lines of a log in which no line is a command to a CI system. Escape sequences for colours stay."""
    return _COMMAND_ANYWHERE.sub(r"#\\x23", _COMMAND_LINE.sub(r"\1\\x3a", text))


def terminal(text: str) -> str:
    """Text for a terminal, or for the log of a CI system."""
    return guarded(visible(text))


class OwnWords:
    """Mixin for items and collectors of pytest: a failure of the class `own_error` shows its message, no traceback.

    A traceback through the harness does not help the author of a case. Nor does one of an `expected_error`: pytest
    would parse the file of each function in it, which took a tenth of a second.
    """

    own_error: ClassVar[type[BaseException]]
    expected_error: ClassVar[tuple[type[BaseException], ...]] = ()
    name: str
    path: Path

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """The message of an `own_error`, safe for a terminal; of any other failure, pytest's text.

        pytest's short summary, JUnit file and annotations get the first line alone, without the item's name, which they
        have already. They would otherwise repeat the whole text in the log of a CI system, where pytest shortens
        nothing.
        """
        if isinstance(excinfo.value, self.own_error):
            shown = excinfo.getrepr(style="value", chain=False)
            lines = terminal(str(excinfo.value)).split("\n")
            shown.reprtraceback.reprentries[0].lines[:] = lines
            if (crash := shown.reprcrash) is not None:
                crash.message = lines[0].partition(f"{self.name}: ")[2] or lines[0]
                crash.path, crash.lineno = str(self.path), 1
            return shown
        if isinstance(excinfo.value, self.expected_error):
            return excinfo.getrepr(style="value", chain=False)
        styles = () if style is None else (style,)  # a function's item takes none
        return super().repr_failure(excinfo, *styles)  # type: ignore[misc]


def workflow_data(text: str) -> str:
    """The message of a GitHub workflow command."""
    return terminal(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def workflow_property(text: str) -> str:
    """A property of a GitHub workflow command."""
    return workflow_data(text).replace(":", "%3A").replace(",", "%2C")


def csv_cell(value: object) -> object:
    """A cell of a table: text that a spreadsheet would take for a formula gets an apostrophe; numbers stay numbers.

    https://owasp.org/www-community/attacks/CSV_Injection, with the full-width signs that some locales read alike.
    """
    if not isinstance(value, str):
        return value
    guard = "'" if value.lstrip()[:1] in tuple("=+-@＝＋－＠") or value[:1] in ("\t", "\r", "\n") else ""
    return guard + line(value)


def markdown_code(text: object) -> str:
    """A code span that its text cannot close, for one line or a cell of a table."""
    shown = guarded(line(re.sub(r"\s+", " ", str(text)))).replace("|", "¦")
    longest = max(map(len, re.findall(r"`+", shown)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}" if shown else ""


def markdown_fence(text: str) -> str:
    """A fenced block that its text cannot close."""
    shown = terminal(text)
    longest = max(map(len, re.findall(r"`+", shown)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}text\n{shown}\n{ticks}"


def markdown_text(text: str) -> str:
    """One line in which neither Markdown nor HTML means anything."""
    shown = terminal(re.sub(r"\s+", " ", text))
    return re.sub(r"([\\`*_\[\]#|~@])", r"\\\1", html.escape(shown, quote=False))


def html_text(text: str) -> str:
    """One line for an element of HTML."""
    return html.escape(guarded(line(text)))


# XML 1.0, production 2: other characters cannot occur, not even escaped.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(text: str) -> str:
    """Text for XML 1.0, which a writer of XML still has to escape; logs print it, so no line is a command."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", terminal(text))


def sarif_text(text: str) -> str:
    """A message of SARIF 2.1.0, where `[words](target)` would be a link (3.11.6)."""
    shown = visible(text)
    return re.sub(r"([\\\[\]])", r"\\\1", shown) if "](" in shown else shown
