"""Which image Kubernetes pulls for a name: without a registry it may not be the intended image."""

DEFAULT_REGISTRY = "docker.io"
LOCAL = "localhost"
"""The registry in the names of images that podman built; no cluster can pull from it."""


def registry(image: str) -> str | None:
    """Return the registry at the beginning of an image's name; None if it has no registry.

    The rule of https://github.com/distribution/reference: the first part is a host if it has a dot
    or a colon, or is localhost.
    """
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == LOCAL) else None


def pulled_as(image: str) -> str:
    """Return the full name by which Kubernetes pulls an image."""
    if registry(image) is not None:
        return image
    path = image if "/" in image else f"library/{image}"
    return f"{DEFAULT_REGISTRY}/{path}"


def remark(image: str) -> str:
    """Return a note for readers of a manifest about an image that is in no registry, else ''."""
    if registry(image) == LOCAL:
        return f"{image} is in no registry: import it on every node, or name another image"
    return ""
