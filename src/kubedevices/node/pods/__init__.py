"""A pod as the node sees it, and which devices it holds. Calls nobody.

quantity           "2" and "1500m" as whole units
pod                a pod from a Kubernetes manifest
pod_devices        who holds what, with the response that came along
pod_devices_store  where admitted pods are kept: the interface of the ledger
container_options  stored responses as one set of run options
hold_owner         whose command a pod's devices are held for, and whether it still runs
"""
