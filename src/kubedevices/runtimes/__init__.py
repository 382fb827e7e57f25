"""Run options in a runtime's own words. Pure: whoever calls prints, quotes and starts.

For `allocate --format` and for whoever starts containers without Kubernetes. What a runtime cannot
say raises `NotExpressible`, never vanishes.

podman  arguments of `podman run`
docker  arguments of `docker run`
oci     an OCI runtime configuration, for runc, crun and containerd
cdi     a CDI file that stands for one allocation
env     environment variables alone
"""

FORMATS = ("podman", "docker", "oci", "cdi", "env")
"""Every format, by the name of its module."""
