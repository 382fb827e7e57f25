"""A pod gets its devices, all or nothing; then its containers start.

allocator        which devices a container gets: decides, calls nobody
order            what runs after what: per pod, between pods, and calls at once
admission        plan, reserve, ask the plugins, commit or roll back
admitted_pods    the pods that were admitted: in memory and in the store, always the same
after_restart    pods from before our start: waits for late plugins, checks before they start
container_start  what happens right before a container starts
"""
