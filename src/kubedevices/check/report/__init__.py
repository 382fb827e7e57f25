"""Reports of a run, for people and for programs.

summary    the run for all reports: counts, the verdict in one sentence, texts about a finding
expected   known findings, read from the file of `--expect`
accepting  adds findings to this file (`--write-expected`); people add the reasons
progress   the line on stderr during a run
text       a table by theme, then each finding explained
document   JSON
junit      JUnit XML for CI servers
markdown   the summary of a CI job
page       one HTML file for a bug report
"""
