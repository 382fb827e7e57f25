"""The entrances to JSON and YAML texts that others may have written. This file imports nothing.

Each text has a limit of size, depth and number of values before a parser sees it. A test allows no
other call of `json.loads` or of a function of PyYAML that parses.

json_text  JSON, for every file, answer and line
yaml_text  YAML: nodes with line and column, or values
shape      the types of the values in a text
kept       the parts of values that a shape names, equal ones once
nesting    how deep brackets are nested in a text
"""
