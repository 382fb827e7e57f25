"""Verbs for other vendors' plugins.

proxy          stands between the kubelet and device plugins
proxy_dry_run  prints the devices that the kubelet would get from a proxy
record         records the lists and calls between plugins and the kubelet
replay         serves a record as a plugin
cordon         takes a device from new pods
uncordon       lets new pods have a cordoned device again
"""
