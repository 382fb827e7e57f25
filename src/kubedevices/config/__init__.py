"""YAML files of the user, checked against dataclasses. This file imports nothing.

yaml_config   checks a file against dataclasses, whose fields are its keys
json_schema   the same dataclasses as a JSON schema, for editors
placeholders  texts with placeholders such as `{id}`
durations     `5s`, `500ms`, `1m`, `1h`
yaml_source   YAML nodes with line and column, and the list of mistakes in a file
documents     the entrances to JSON and YAML, with limits of size and depth
"""
