"""The topology manager: which NUMA nodes a container gets.

options      its settings, checked
subset_sums  sums over all sets of NUMA nodes at once
hints        which sets of NUMA nodes could serve a request
policy       which of them a container gets: the merge of all hints
manager      asks for hints and remembers what was decided
"""
