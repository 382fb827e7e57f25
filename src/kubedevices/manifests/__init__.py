"""Kubernetes manifests for our plugins: the only source of them. Pure; for `kubedevices manifests`.

memory     how much memory a plugin gets
values     what an admin sets about the objects, as a file has it
secret_directories  which directories of a host no plugin may see
affinity   the affinity of pods with conditions of ours in it
deployment  what to deploy and where
chart      the values of the Helm chart
scheduling  which nodes get a pod
monitoring  objects for Prometheus, Grafana and the network
alerts     the alerts for Prometheus
dashboard  the dashboard for Grafana
openshift  what OpenShift asks for beside
volumes    which directories of the host a container sees
dra_access  what a DRA driver may do, and the classes of its devices
workload   a DaemonSet, a Pod and what they need, as documents
kustomize  the same as overlays: the files below deploy/kustomize
units      services of systemd, for a host
image      which image a name means, and whether a cluster could pull another one by it
ownership  what may be changed and deleted in a cluster: what we made, and nothing else
rollout    how far a roll-out is, and why it does not go on
"""
