"""The services that clients call.

control         our own local service
control_client  asks that service, for the command line
pod_resources   the kubelet's podresources service: which pod holds which device
"""
