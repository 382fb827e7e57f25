"""Kubernetes manifests and systemd units of the ready plugins and the node. Pure.

`kubedevices manifests` prints them. The files below deploy/ are generated from them.

deployment          what to deploy and where, as a value
values              the schema of `--values`: settings of the admin, shared with the Helm chart
workload            the documents of a plugin (DaemonSet and its other objects) and of a node (Pod)
scheduling          nodes, tolerations and priority class of a pod
affinity            adds conditions to the affinity of pods
volumes             which directories of the host a container sees
secret_directories  which directories of the host a plugin must not see
memory              memory requests and limits
dra_access          the rights of a DRA driver, and its DeviceClasses
openshift           SecurityContextConstraints for OpenShift
monitoring          objects for Prometheus, Grafana and the network
alerts              the alerts for Prometheus
dashboard           the dashboard for Grafana
chart               the values of the Helm chart
kwok                fake nodes for KWOK, with the timeline of the simulator
units               systemd units for a host
image               which image a name means, and from which registry a cluster pulls it
ownership           which objects `deploy` and `undeploy` may change and delete
held_claims         which pods would hang without a DRA driver
rollout             how far a roll-out is, and why it does not go on
"""
