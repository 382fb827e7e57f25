"""Verbs for authors of a plugin.

init            writes the project of a plugin
scan            runs a scanner once and prints its devices
run             serves a scanner
scanner_loader  imports `MODULE:NAME` and returns its scanner, for scan and run
"""
