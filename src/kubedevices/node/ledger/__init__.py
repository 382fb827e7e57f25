"""The admitted pods, stored on disk: one transaction per pod.

ledger_file  the SQLite file: its tables, its transactions, and the checks for damage
log_frames   the frames of SQLite's write-ahead log, and whether one is damaged
lost_pods    the pods that a damaged log hides from SQLite
ledger       the store of a node; it writes the file on one thread
"""
