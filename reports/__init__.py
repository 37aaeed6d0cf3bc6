"""Reports: turn records into pages for people and files for other tools, without a GPU, triton or torch.

    ptxdiff.reports.html.write(runs, path)          the self-contained HTML page
    ptxdiff.reports.summary.terminal(run)           a rich renderable
    ptxdiff.reports.junit.write(run, path)          JUnit XML
    ptxdiff.reports.github.step_summary(run)        Markdown for a GitHub step summary
    ptxdiff.reports.github.annotations(run)         workflow commands, one a case file
    ptxdiff.reports.sarif.write(run, path)          SARIF 2.1.0
    ptxdiff.reports.tabular.write_csv(run, path)    one row a result; write_parquet likewise

This module imports nothing, so that each of them costs only what it needs.
"""
