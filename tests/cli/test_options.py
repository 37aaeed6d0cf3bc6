"""The words of options: one for each thing, over all verbs and pytest; old spellings; misspelt ones."""

from __future__ import annotations

import argparse
import importlib
from collections import defaultdict

import pytest

from ptxdiff import options
from ptxdiff.cli import VERBS, main
from tests.support.command_line import pytest_arguments

SYNONYMS = (
    {"format", "json", "form"},
    {"limit", "timeout", "time-limit"},
    {"seconds", "budget", "duration"},
    {"fusion", "fuse"},
    {"jobs", "workers", "processes", "numprocesses"},
    {"assembler", "ptx-assembler", "ptxas"},
    {"opt", "ptx-opt", "level"},
    {"sanitize", "sanitizer"},
    {"records", "ptx-records", "runs"},
    {"ledger", "conformance"},
    {"output", "dtype", "out"},
    {"target", "arch", "sm"},
    {"cluster", "ray", "address"},
    {"baseline", "accepted"},
    {"cases", "folder"},
)
"""Words for one thing: at most one of each set is offered, by all verbs together."""


def offered() -> dict[str, argparse.ArgumentParser]:
    """Each verb's parser."""
    parsers = {}
    for verb in VERBS:
        parsers[verb] = argparse.ArgumentParser(verb)
        importlib.import_module(f"ptxdiff.cli.{verb}").configure(parsers[verb])
    return parsers


def spellings(shown: bool) -> dict[str, dict[str, list[str]]]:
    """Each option's long word, with the verbs that have it and all its spellings there."""
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for verb, parser in offered().items():
        for action in parser._actions:
            if (action.help != argparse.SUPPRESS) == shown and action.dest != "help":
                for word in (s for s in action.option_strings if s.startswith("--")):
                    found[word.removeprefix("--")][verb] = sorted(action.option_strings)
    return found


def double(words: dict[str, dict[str, list[str]]]) -> list[str]:
    """What is wrong with these words: synonyms, words with several letters, letters with several words."""
    wrong = [f"{sorted(s & words.keys())} are one thing" for s in SYNONYMS if len(s & words.keys()) > 1]
    letters = defaultdict(set)
    for word, verbs in words.items():
        if len({tuple(names) for names in verbs.values()}) > 1:
            wrong.append(f"--{word} has a letter in some verbs only: {verbs}")
        for names in verbs.values():
            for name in names:
                if not name.startswith("--"):
                    letters[name].add(word)
    return wrong + [f"{letter} is {sorted(found)}" for letter, found in letters.items() if len(found) > 1]


def test_no_two_verbs_use_two_words_for_one_thing():
    assert double(spellings(shown=True)) == []


@pytest.mark.parametrize(
    ("word", "verbs", "complaint"),
    [
        ("timeout", {"sweep": ["--timeout"]}, "['limit', 'timeout'] are one thing"),
        ("target", {"new": ["--target"], "run": ["--target", "-t"]}, "--target has a letter in some verbs only"),
        ("trace", {"emulate": ["--trace", "-t"]}, "-t is ['target', 'trace']"),
    ],
)
def test_a_second_word_for_a_thing_is_noticed(word, verbs, complaint):
    assert any(complaint in line for line in double({**spellings(shown=True), word: verbs}))


def test_words_of_several_verbs_come_from_the_table():
    several = {word for word, verbs in spellings(shown=True).items() if len(verbs) > 1}
    assert several <= options.SHARED.keys()
    assert options.SHARED["target"].names == ("-t", "--target")


def test_an_option_of_a_run_is_pytests_option_with_a_prefix():
    run = offered()["run"]
    added: list[str] = []
    options.add_to_pytest(lambda name, **facts: added.append(name))
    assert added == [f"--ptx-{option.word}" for option in options.RUNS]
    assert {f"--{o.word}" for o in options.RUNS} <= set(run._option_string_actions)


def test_a_runs_options_reach_pytest_with_their_values():
    words = "a.py -t sm_90 -t sm_80 --fresh --opt 0 --limit 2.5 --approximate rounded --sanitize racecheck"
    args = offered()["run"].parse_args(words.split())
    assert options.pytest_words(args) == [
        "--ptx-target=sm_90", "--ptx-target=sm_80", "--ptx-opt=0", "--ptx-records=build/records", "--ptx-fresh",
        "--ptx-limit=2.5", "--ptx-approximate=rounded", "--ptx-sanitize=racecheck",
    ]  # fmt: skip


def test_options_of_pytest_that_run_has_itself(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases").mkdir()
    arguments = pytest_arguments("cases", "-k", "rcp and not x", "-x", "-j", "2")
    assert {"-k=rcp and not x", "-x", "-n2", "-q", "--dist=loadgroup"} <= set(arguments)
    arguments = pytest_arguments("cases", "-v")
    assert "-v" in arguments
    assert "-q" not in arguments


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("words", "dest", "value", "said"),
    [
        ("cache --json", "format", "json", "--json is now --format json"),
        ("sweep a --journal j --timeout 3", "limit", 3.0, "--timeout is now --limit"),
        ("emulate x --fuse", "fusion", True, "--fuse is now --fusion"),
        ("conformance --workers 3", "jobs", 3, "--workers is now --jobs"),
        ("lint --dtype f32 --dtype f16", "output", ["f32", "f16"], "--dtype is now --output"),
        ("speed --ptx-opt 1 --ptx-opt 3", "opt", [1, 3], "--ptx-opt is now --opt"),
        ("run --output x.jsonl", "records", "x.jsonl", "--output is now --records"),
        ("run --sanitizer synccheck", "sanitize", "synccheck", "--sanitizer is now --sanitize"),
        ("report --conformance f", "ledger", "f", "--conformance is now --ledger"),
        ("compare a --targets x y", "between", ["x", "y"], "--targets is now --between"),
        ("init --accepted x", "baseline", "x", "--accepted is now --baseline"),
        ("new a --folder x", "cases", "x", "--folder is now --cases"),
        ("mutate a --inputs 3", "spread", 3, "--inputs is now --spread"),
    ],
)
def test_an_old_spelling_works_with_a_warning(words, dest, value, said, capsys):
    verb, *rest = words.split()
    args = offered()[verb].parse_args(rest)
    assert getattr(args, dest) == value
    assert said in capsys.readouterr().err
    assert f" {said.split()[0]} " not in offered()[verb].format_help()


def test_every_old_spelling_has_its_row_above():
    rows = test_an_old_spelling_works_with_a_warning.pytestmark[0].args[1]
    tried = {said.split()[0].removeprefix("--") for *_, said in rows} | {"ptx-assembler"}
    assert spellings(shown=False).keys() == tried


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --taget sm_90", "no option --taget; did you mean --target?"),
        ("run --lf", "no option --lf; an option of pytest follows --: ptxdiff run cases -- --lf"),
        ("sweep a --jurnal=x --journal j", "no option --jurnal; did you mean --journal?"),
        ("cache --zzz", "no option --zzz; ptxdiff cache --help lists all"),
        ("new one two", "'two' is one word too many"),
        ("report -f csvv", "'github-annotations'); did you mean csv?"),
        ("run --effort ful", "did you mean full?"),
    ],
)
def test_a_misspelt_option_gets_the_nearest(words, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words.split())
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_a_sweep_says_that_its_limit_is_a_time_now(capsys):
    assert main(["sweep", "nothing", "--journal", "j", "--limit", "3"]) == 2
    assert "--limit is the seconds of a shard; --shards stops after a number of them" in capsys.readouterr().err


def old_spellings():
    """Each old spelling with its verb."""
    return [
        pytest.param(verb, action, id=f"{verb} {action.option_strings[-1]}")
        for verb, parser in offered().items()
        for action in parser._actions
        if isinstance(action, options._Old)
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("verb", "old"), old_spellings())
def test_an_old_spelling_means_the_new_one_at_every_verb(verb, old, capsys):
    parser, new = offered()[verb], old.new
    needed = []
    for action in parser._actions:
        many = action.nargs if isinstance(action.nargs, int) else int(action.nargs not in ("?", "*"))
        if not action.option_strings or action.required:
            needed += [
                *action.option_strings[-1:],
                *["x" if action.choices is None else next(iter(action.choices))] * many,
            ]
    many = old.nargs if isinstance(old.nargs, int) else 1
    values = ["1" if new.choices is None else str(next(iter(new.choices)))] * many
    as_new = [old.value] if isinstance(old.value, str) else values
    word, now = old.option_strings[-1], new.option_strings[-1]
    found = parser.parse_args([*needed, word, *values])
    assert f"{word} is now {' '.join([now, *as_new]) if many == 0 and as_new else now}" in capsys.readouterr().err
    assert vars(found) == vars(parser.parse_args([*needed, now, *as_new]))
    assert not capsys.readouterr().err
