"""Judges a cluster, or a node, pod or claim of it, from the cluster's objects alone.

objects              the objects that decide about claims, and who holds which device
read_objects         reads these objects from the API server
device_table         the devices of a cluster, of both APIs, with their holders
answer               the answer about a subject of a cluster, and the reason for each device
judge_subject        the answer about a cluster, a node, a pod or a claim
judge_cluster        all that is wrong in a cluster, on a node, or with one resource or driver
judge_pod            how far a pod is, and why it is not further
judge_claim          how far a claim is
judge_results        whether the devices of claims exist, and have one holder
judge_waiting        why a pod waits for a node: what the scheduler says, and what is behind it
judge_extended       why no node has the extended resources of a pod
judge_pod_on_node    whether a pod may run on a node
judge_claim_on_node  what a node has for a claim
device_reason        why a device does not serve a request
judge_cause          why no node has the devices of a claim: the cause
"""
