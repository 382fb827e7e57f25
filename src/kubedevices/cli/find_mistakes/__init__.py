"""Verbs that find mistakes.

check            acts as the kubelet for a plugin, and reports its mistakes
check_arguments  the options of check
check_driver     what check does for a DRA driver
explain          says why a device cannot be allocated, or not be used in its container
explain_cluster  what explain says of a pod or a claim of a cluster
explain_fix      the repairs of explain
"""
