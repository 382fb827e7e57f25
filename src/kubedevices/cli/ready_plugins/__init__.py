"""Verbs that serve devices without code.

expose           serves devices of this host
expose_printing  what expose prints instead of serving: `--dry-run`, profiles
simulate         serves simulated devices
"""
