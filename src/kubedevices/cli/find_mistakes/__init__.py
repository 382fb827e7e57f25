"""Verbs that find mistakes.

check            acts as the kubelet for a plugin, and reports its mistakes
check_arguments  the options of check
explain          says why a device cannot be allocated, or not be used in its container
"""
