"""Which pods were admitted, made durable: one transaction per pod.

ledger_file  the SQLite file, and whether it can be trusted
ledger       the store of admitted pods on that file, on one thread
"""
