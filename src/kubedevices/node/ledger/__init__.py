"""The admitted pods, stored on disk: one transaction per pod.

ledger_file  the SQLite file: its tables, its transactions, and the checks for damage
ledger       the store of a node; it writes the file on one thread
"""
