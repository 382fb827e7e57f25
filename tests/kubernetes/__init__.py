"""Tests on a real Kubernetes; docs/development/real-kubernetes.md says how to have it."""
