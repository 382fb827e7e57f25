"""A pod gets its devices, all or nothing; then its containers start.

allocator        which devices a container gets: decides, calls nobody
under_way        what is being given or given back right now, and who waits for it
pod_queue        work on one pod, one piece after the other
concurrently     several calls at once, all or nothing
admission        plan, reserve, ask the plugins, commit or roll back
admitted_pods    the pods that were admitted: in memory and in the store, always the same
after_restart    pods from before our start: waits for late plugins, checks before they start
container_start  what happens right before a container starts
"""
