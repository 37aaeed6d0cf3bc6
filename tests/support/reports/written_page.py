"""A page on a run, written to a file."""

from ptxdiff.reports import html


def written(tmp_path, runs, **options):
    path = html.write(runs, tmp_path / "deep" / "report.html", **options)
    assert path == tmp_path / "deep" / "report.html"
    return path.read_text(encoding="utf-8")
