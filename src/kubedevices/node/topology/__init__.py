"""The topology manager: which NUMA nodes a container gets.

options  the settings, checked
hints    which sets of NUMA nodes could serve a request
policy   the policies: which set of NUMA nodes a container gets, from all hints
manager  collects the hints and remembers the decisions
"""
