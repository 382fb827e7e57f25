"""`kubedevices check`: finds the mistakes of any device plugin, in any language.

The check acts as the kubelet. A run opens one or more harnesses. A harness has one copy of the
plugin and a probe that acts as its kubelet. A check runs on a harness and gives a verdict for each
resource. Reports show the verdicts.

check            what a check is: rule, severity, phase, verdict
checks           the checks, one file per theme
catalogue        all checks of one kind of program: find one, choose some
drivers          the same for DRA drivers: rules, and the node that plays all others
answers          answers of the plugin as text, and how two of them differ
plugin           one resource of the plugin, with the calls that checks make
target           what to check, and the trigger that changes devices
program_copy     one copy of the program: its processes, and waits for what it does
harness          one copy of the plugin and the probe that is its kubelet
harness_setup    opens a harness and closes it
shared_state     what all harnesses of a run share
results          the results so far; a check that needs a failed check is skipped
check_sequence   runs checks one after another on one harness
runner           a whole run: which checks at the same time, which one after another
kubelets         the kubelet versions that a plugin is judged for
timing           all durations in one value
busy_machine     a plugin's own time, without the time in which it waited for a processor
directories      the directories of a run, and their paths as the plugin sees them
processes        the plugin's processes, as the check sees them
supervisor       the process that starts plugins, and kills them when the check ends
process_figures  descriptors, threads and memory of a process
last_words       the lines in a program's output that say why it crashed
report           results as table, JSON, JUnit, Markdown and HTML
pytest_check     `conformance`, the check of a scanner inside a test suite
left_behind      directories and processes that an earlier check left
"""
