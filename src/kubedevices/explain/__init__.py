"""Explains why a device is not allocatable, or not usable in its container: `kubedevices explain`.

There are two explanations. On a node, `on_node` follows a device from its plugin into a container;
`in_cluster` judges a cluster, or a node, pod or claim of it, from the cluster's objects alone. In
both, some modules gather facts, and the modules `judge_…` turn facts into findings; they are pure.

finding     one station: ok, unknown, warning or problem, and what to do about it
on_node     what is wrong on this host
in_cluster  what is wrong in a cluster, from anywhere
bundle      a file for a bug report: what was read, and the answer
"""
