"""A pod as the node sees it, and the devices that it holds.

quantity           reads quantities such as "2" and "1500m" as whole units
pod                a pod, from a Kubernetes manifest
pod_devices        which container holds which devices, in memory
pod_devices_store  the interface of a store of admitted pods; the ledger is one
container_options  merges the plugins' answers into one set of run options
hold_owner         the command for which the devices of a pod are held (`kubedevices with`)
"""
