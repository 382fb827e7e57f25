"""The version of kubedevices."""

VERSION = "0.1.0"
"""The same as in pyproject.toml, which a release compares with its tag."""
