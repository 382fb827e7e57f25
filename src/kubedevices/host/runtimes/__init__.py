"""Container options in the form of each runtime. Pure: the caller prints, quotes and starts.

For `allocate --format`, and for programs that start containers without Kubernetes. An option that a
runtime cannot express raises `NotExpressible`; it is never left out silently.

engine  arguments of `podman run` and `docker run`
oci     an OCI runtime configuration, for runc, crun and containerd
cdi     a CDI file with one device, which is the whole allocation
env     environment variables alone
"""

FORMATS = ("podman", "docker", "oci", "cdi", "env")
"""Every format. For podman and docker `engine` makes it, else the module of this name."""
