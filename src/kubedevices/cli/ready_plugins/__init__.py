"""Verbs that serve devices without code.

expose           serves devices of this host
expose_printing  what expose prints instead of serving: `--dry-run`, profiles
simulate         serves simulated devices
simulate_nodes   serves the simulated devices of many nodes in one process
"""
