"""The kubelet's file kubelet_internal_checkpoint, both ways, byte for byte.

checksum   its checksum, fast
reader     its JSON into values, by the rules of the kubelet's reader
text       the text of the file from values, and back
file       read to move in from a kubelet, replaced atomically
writer     keeps the file up to date behind every answer
"""
