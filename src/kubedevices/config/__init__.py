"""YAML files of the user, checked against dataclasses. This file imports nothing.

keys          declares the keys of a file as fields of dataclasses, for files and Python code
yaml_config   checks a file against such dataclasses
json_schema   the same dataclasses as a JSON schema, for editors
placeholders  texts with placeholders such as `{id}`
durations     `5s`, `500ms`, `1m`, `1h`
checks        checks of values that several files have
yaml_source   YAML nodes with line and column, and the list of mistakes in a file
documents     the entrances to JSON and YAML, with limits of size and depth
"""
