"""Which devices fit a claim, and which a scheduler of Kubernetes 1.36 chooses. Pure.

`testing` allocates with these modules, and `explain` says with them why a claim waits, so both
follow the same rules. The driver in `dra` uses none of them: a mistake here must not be on both
sides of a test.

kinds           the kinds of objects and their URL paths
node_selectors  whether a slice or device is for a node
pools           the pools of devices that a node can use, and their counters
capacities      capacities that several allocations of one device consume
constraints     constraints between the devices of a claim
wishes          the requests of a claim, and which devices fit to one alone
allocation      the status of an allocated claim
scheduler       allocates devices to claims
"""
