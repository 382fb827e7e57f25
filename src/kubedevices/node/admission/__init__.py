"""A pod gets all its devices or none; then its containers start.

device_choice    which devices a container gets; a pure decision
concurrency      which work on pods runs one after the other, and which at once
admission        the admission of a pod: plan, reserve, call Allocate, commit or roll back
admitted_pods    the admitted pods, the same in memory and in the store
after_restart    pods from before a restart of the node: which containers wait for their plugin
container_start  the steps before each start of a container
"""
