"""What several verbs use.

output       tables, JSON and YAML on stdout
log_lines    log lines on stderr
node_client  `--socket-dir` and `--state-dir`; asks the node, or the kubelet instead
serving      options of run, simulate, expose and replay; starts the plugin
dra_serving  `--mode` and the other DRA options of these verbs; starts the driver
"""
