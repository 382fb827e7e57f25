"""YAML files of the user, checked against dataclasses. A map; imports nothing.

yaml_config   the keys of a file as dataclasses, and a walker that checks it
json_schema   the same dataclasses as a JSON schema, for editors
placeholders  texts with `{id}` and the like
durations     `5s`, `500ms`, `1m`, `1h`
yaml_source   YAML nodes with their place in the file
"""
