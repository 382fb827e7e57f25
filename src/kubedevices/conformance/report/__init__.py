"""What a run found, for people and for programs, made of `CheckResult`s.

expected   the findings that are known already
accepting  writes findings to the file of known findings, for people to add their reasons
summary    counts, the sentence they make, and the words about one finding
text       a table grouped by theme, and under it what to know about each finding
document   JSON
junit      the XML that CI servers read
progress   what stderr shows while a run goes on
markdown   the summary of a CI job
page       one HTML file that can be attached to a bug report
"""
