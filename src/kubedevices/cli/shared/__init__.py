"""What several verbs use.

help_text       the help of a verb, for the width of the terminal
log_options     `--log-level` and `--log-format`
output          tables, JSON and YAML on stdout
node_client     `--socket-dir` and `--state-dir`; asks the node, or the kubelet instead
cluster_client  `--kubeconfig` and `--namespace`; connects to the API server
serving         options of run, simulate, expose and replay; starts the plugin
dra_serving     `--mode` and the other DRA options of these verbs; starts the driver
"""
