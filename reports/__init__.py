"""Reports: turn records into pages for people and files for other tools, without a GPU, triton or torch.

    ptxdiff.reports.html.write(runs, path)          the self-contained HTML page
    ptxdiff.reports.summary.terminal(run)           a rich renderable
    ptxdiff.reports.junit.write(run, path)          JUnit XML
    ptxdiff.reports.github.step_summary(run)        Markdown for a GitHub step summary
    ptxdiff.reports.github.annotations(run)         workflow commands, one a case file
    ptxdiff.reports.sarif.write(run, path)          SARIF 2.1.0
    ptxdiff.reports.tabular.write_csv(run, path)    one row a result; write_parquet likewise

This module imports none of them, so that each costs only what it needs.
"""

import os

__path__[:] = map(os.path.realpath, __path__)  # in a checkout a link leads here; modules have their real files
