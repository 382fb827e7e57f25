"""Kubernetes manifests for our plugins: the only source of them. Pure; for `kubedevices manifests`.

workload   a DaemonSet, a Pod and what they need, as documents
kustomize  the same as a base and overlays: the files below deploy/kustomize
"""
