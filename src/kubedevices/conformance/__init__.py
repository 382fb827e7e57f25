"""Is this device plugin well behaved? A kubelet's view of any plugin, in any language.

A run has a stage (the plugin's processes and a probe as its kubelet) on which checks are tried one
after another; each finds a verdict per resource, and reports show them.

check            what a check is and how it speaks
checks           the checks, one file per theme
plugin           one resource of the plugin, in the words of the checks
target           what to check
stage            the plugin under check and the kubelet it meets
board            what was found so far, and what that says about other checks
line             checks one after another on one stage, and what a plugin's end means
runner           which checks side by side, and which one after another
notes            what the stages of one run tell each other
last_words       the lines of a crashed program's output that say why
kubelets         which kubelets a plugin is judged for
timing           every duration in one value
lost_time        a plugin's own time: without what the machine took from it
priority         the check before other programs of a busy machine
trigger          the command that makes devices change, and what undoes it
view             directories of a run, and where the plugin sees them
processes        the plugin's processes, as the check sees them
process_figures  descriptors, threads and memory of a process
supervisor       the process that starts plugins and ends them, whatever happens
report           results as table, JSON, JUnit and HTML
"""
