"""Verbs for files in hand, and about this program.

cdi         lists CDI devices, checks CDI files, says why a name does not resolve
checkpoint  reads the allocations in a checkpoint of a kubelet
completion  prints the completion of shells
help        prints the help of a verb, or of all verbs as a man page
"""
