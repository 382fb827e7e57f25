"""Random inputs for everything that reads bytes of strangers.

target    what is searched: a strategy of inputs, and a check that raises for a bug
inputs    strategies: changed files of the corpus, tokens, numbers out of bytes
child     a process that searches one target: a crash of the process is a finding too
search    runs the processes, saves the inputs of findings in `corpus/TARGET`
targets   one file per group of targets

`make fuzz SECONDS=60` searches each target for 60 seconds. `test_search` repeats the whole corpus,
so a file that a search has saved stays a test. An input is named after its content.
"""
