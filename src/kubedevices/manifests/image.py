"""Which image a name means: a name without a registry means another one than its author thinks."""

DEFAULT_REGISTRY = "docker.io"
LOCAL = "localhost"
"""What podman calls images that it built itself; no cluster can pull from there."""


def registry(image: str) -> str | None:
    """Return the host that an image's name begins with, None where there is none.

    The rule is that of https://github.com/distribution/reference: the first part is a host if it
    has a dot or a colon, or is localhost.
    """
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == LOCAL) else None


def pulled_as(image: str) -> str:
    """Return the full name by which Kubernetes looks for an image, and pulls it."""
    if registry(image) is not None:
        return image
    path = image if "/" in image else f"library/{image}"
    return f"{DEFAULT_REGISTRY}/{path}"


def remark(image: str) -> str:
    """Return which image is meant, for people who read a manifest; '' where the name says it."""
    host = registry(image)
    if host is None:
        return f"{image} names no registry: Kubernetes pulls {pulled_as(image)}"
    if host == LOCAL:
        return f"{image} is in no registry: import it on every node, or name another image"
    return ""
