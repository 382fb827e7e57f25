"""The version of kubedevices."""

VERSION = "0.1.0"
"""The same as in pyproject.toml. A release compares it with its tag."""
