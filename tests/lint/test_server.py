"""The language server, spoken to over standard input and output as an editor does."""

import json
import queue
import subprocess
import sys
import threading

import pytest

from ptxdiff.cli import main

WRONG = 'y = tl.inline_asm_elementwise("neg.f32 $0, %1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)\n'
RIGHT = WRONG.replace("%1", "$1")
CUDA = '__device__ void f(float &y, float x) {\n  asm("neg.f32 %0, $1;"\n      : "=f"(y) : "f"(x));\n}\n'


class Editor:
    """A client of the server: requests, notifications, and what the server publishes."""

    def __init__(self, folder, *options, encodings=None):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ptxdiff", "lint", "--lsp", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.messages = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.number = 0
        general = {"general": {"positionEncodings": encodings}} if encodings else {}
        self.capabilities = self.request("initialize", processId=None, rootUri=None, capabilities=general)
        self.notify("initialized")

    def _read(self):
        while head := self.process.stdout.readline():
            size = 0
            while head.strip():
                name, _, value = head.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
                head = self.process.stdout.readline()
            self.messages.put(json.loads(self.process.stdout.read(size)))
        self.messages.put(None)

    def _send(self, **message):
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
        self.process.stdin.flush()

    def notify(self, method, **params):
        self._send(method=method, params=params)

    def _next(self, wanted):
        while True:
            message = self.messages.get(timeout=60)
            assert message is not None, "the server has ended"
            if wanted(message):
                return message

    def request(self, method, **params):
        self.number += 1
        self._send(id=self.number, method=method, params=params)
        answer = self._next(lambda m: m.get("id") == self.number)
        assert "error" not in answer, answer
        return answer["result"]

    def uri(self, name):
        return (self.folder / name).as_uri()

    def published(self, name):
        """The next diagnostics of a document: rule, first line, columns."""
        method = "textDocument/publishDiagnostics"
        message = self._next(lambda m: m.get("method") == method and m["params"]["uri"] == self.uri(name))
        return message["params"]["diagnostics"]

    def open(self, name, text, language="python"):
        document = {"uri": self.uri(name), "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", textDocument=document)
        return self.published(name)

    def change(self, name, text, version):
        changed = {"uri": self.uri(name), "version": version}
        self.notify("textDocument/didChange", textDocument=changed, contentChanges=[{"text": text}])

    def at(self, name, line, character):
        return {"textDocument": {"uri": self.uri(name)}, "position": {"line": line, "character": character}}

    def actions(self, name, line, character):
        at = {"line": line, "character": character}
        area = {"start": at, "end": at}
        document = {"uri": self.uri(name)}
        return self.request("textDocument/codeAction", textDocument=document, range=area, context={"diagnostics": []})

    def end(self):
        self.request("shutdown")
        self.notify("exit")
        assert self.process.wait(timeout=30) == 0
        self.process.stdin.close()
        self.reader.join(timeout=30)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    """One server for the tests of this module: it takes two seconds to start."""
    pytest.importorskip("pygls")
    editor = Editor(tmp_path_factory.mktemp("project"))
    yield editor
    editor.end()


def brief(diagnostics):
    return [(d["code"], d["range"]["start"]["line"], d["range"]["start"]["character"]) for d in diagnostics]


def test_open_change_save_and_close(editor):
    (diagnostic,) = editor.open("one.py", WRONG)
    assert (diagnostic["code"], diagnostic["severity"], diagnostic["source"]) == ("operand-sigil", 1, "ptxdiff")
    column = WRONG.index("%1")
    line = {"start": {"line": 0, "character": column}, "end": {"line": 0, "character": column + 2}}
    assert diagnostic["range"] == line
    assert "Why: " in diagnostic["message"]
    editor.change("one.py", RIGHT, 2)
    assert editor.published("one.py") == []
    editor.change("one.py", f"\n{WRONG}", 3)
    assert brief(editor.published("one.py")) == [("operand-sigil", 1, column)]
    editor.notify("textDocument/didSave", textDocument={"uri": editor.uri("one.py")})
    assert len(editor.published("one.py")) == 1
    editor.notify("textDocument/didClose", textDocument={"uri": editor.uri("one.py")})
    assert editor.published("one.py") == []


def test_only_the_last_of_quick_changes_is_linted(editor):
    editor.open("quick.py", RIGHT)
    for version, text in ((2, WRONG), (3, f"\n{WRONG}"), (4, f"\n\n{WRONG}")):
        editor.change("quick.py", text, version)
    assert [line for _, line, _ in brief(editor.published("quick.py"))] == [2]


@pytest.mark.parametrize(
    ("name", "language", "text", "place", "after"),
    [
        ("fix.py", "python", f"# é😋\n{WRONG}", (1, WRONG.index("%1")), f"# é😋\n{RIGHT}"),
        ("same.py", "python", f's = "😋"; {WRONG}', (0, WRONG.index("%1") + 10), f's = "😋"; {RIGHT}'),
        ("lines.py", "python", f"\r\n{WRONG}", (1, WRONG.index("%1")), f"\r\n{RIGHT}"),
        ("fix.cu", "cuda-cpp", CUDA, (1, CUDA.split("\n")[1].index("$1")), CUDA.replace("$1", "%1")),
    ],
)
def test_a_repair_is_a_code_action(editor, name, language, text, place, after):
    (diagnostic, *_) = editor.open(name, text, language)
    start = diagnostic["range"]["start"]
    assert (start["line"], start["character"]) == place
    (action,) = editor.actions(name, *place)
    assert action["kind"] == "quickfix"
    assert action["title"].startswith("operand-sigil: ")
    assert [d["code"] for d in action["diagnostics"]] == ["operand-sigil"]
    (edit,) = action["edit"]["changes"][editor.uri(name)]
    lines = text.split("\n")
    assert edit["range"]["start"]["line"] == edit["range"]["end"]["line"] == place[0]
    units = lines[place[0]].encode("utf-16-le")
    first, last = (edit["range"][end]["character"] * 2 for end in ("start", "end"))
    lines[place[0]] = (units[:first] + edit["newText"].encode("utf-16-le") + units[last:]).decode("utf-16-le")
    assert "\n".join(lines) == after
    assert editor.actions(name, len(lines) - 1, 0) == []


def test_hover_shows_the_page_of_the_rule(editor):
    editor.open("hover.py", WRONG)
    shown = editor.request("textDocument/hover", **editor.at("hover.py", 0, WRONG.index("%1")))
    assert shown["contents"]["kind"] == "markdown"
    assert shown["contents"]["value"].startswith("# operand-sigil\n")
    assert editor.request("textDocument/hover", **editor.at("hover.py", 0, 0)) is None


def test_equal_findings_have_a_diagnostic_at_each_place(editor):
    assert [line for _, line, _ in brief(editor.open("equal.py", WRONG * 3))] == [0, 1, 2]


def test_the_settings_of_the_file_hold(editor):
    project = editor.folder / "settled"
    project.mkdir()
    settings = project / "pyproject.toml"
    settings.write_text('[tool.ptxdiff.lint]\nignore = ["operand-sigil"]\n')
    assert editor.open("settled/one.py", WRONG) == []
    settings.write_text('[tool.ptxdiff.lint]\nignored = ["operand-sigil"]\n')
    editor.notify("textDocument/didSave", textDocument={"uri": editor.uri("settled/pyproject.toml")})
    (diagnostic,) = editor.published("settled/one.py")
    assert "did you mean ignore?" in diagnostic["message"], "wrong settings are no empty list of findings"
    settings.write_text("")
    editor.notify("textDocument/didSave", textDocument={"uri": editor.uri("settled/one.py")})
    assert brief(editor.published("settled/one.py")) == [("operand-sigil", 0, WRONG.index("%1"))]


def test_a_document_that_does_not_parse_has_a_finding(editor):
    assert brief(editor.open("broken.py", f"x = 1\ndef (:\n{WRONG}")) == [("unreadable-file", 1, 0)]


def test_a_document_without_a_file_is_linted_in_its_language(editor):
    document = {"uri": "untitled:Untitled-1", "languageId": "cuda-cpp", "version": 1, "text": CUDA}
    editor.notify("textDocument/didOpen", textDocument=document)
    message = editor._next(lambda m: m.get("params", {}).get("uri") == "untitled:Untitled-1")
    assert "operand-sigil" in [d["code"] for d in message["params"]["diagnostics"]]


@pytest.mark.slow
def test_an_editor_may_count_columns_in_bytes(tmp_path):
    """Slow: it starts another server."""
    pytest.importorskip("pygls")
    editor = Editor(tmp_path, "--ignore", "syntax", encodings=["utf-8"])
    text = f's = "é😋"; {WRONG}'
    try:
        (diagnostic,) = editor.open("bytes.py", text)
        assert diagnostic["range"]["start"]["character"] == text.encode().index(b"%1")
    finally:
        editor.end()


def test_without_pygls_the_error_names_the_command(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "ptxdiff.lint.server", raising=False)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    assert main(["lint", "--lsp"]) == 2
    assert "pip install 'ptxdiff[lsp]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["a.py"], ["--fix"], ["--asm", "ret;"], ["--target", "sm_x"], ["--select", "sintax"]]
)
def test_usage(words, capsys):
    assert main(["lint", "--lsp", *words]) == 2
