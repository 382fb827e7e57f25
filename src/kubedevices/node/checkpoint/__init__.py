"""The kubelet's file kubelet_internal_checkpoint, read and written byte for byte.

checksum   the checksum of the file
reader     reads the JSON by the rules of the kubelet's reader
text       makes the text of the file from values, and reads it
file       reads the file of a kubelet, and replaces a file atomically
writer     writes the file after changes
"""
