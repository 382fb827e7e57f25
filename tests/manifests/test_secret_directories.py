"""Host directories that no plugin may mount."""

from pathlib import Path

import pytest

from kubedevices.manifests.secret_directories import is_secret
from tests.command_line import CommandLine

SECRET = [
    *(
        "/",
        "/etc",
        "/home",
        "/home/lab",
        "/proc",
        "/root",
        "/boot/x",
        "/run",
        "/var",
        "/var/lib",
    ),
    *("/var/run", "/var/run/containerd", "/run/crio", "/run/docker/x", "/etc/kubernetes/pki"),
    *("/var/lib/kubelet", "/var/lib/kubelet/pki", "/var/lib/kubelet/pods/x", "/var/lib/etcd"),
    *("/boot/\nx", "/etc/ssh", "/boot"),
]
ALLOWED = [
    *("/dev", "/lib/firmware", "/opt/w", "/run/w", "/var/lib/w", "/rooted", "/etc/w", "/sys"),
    *("/home/lab/w", "/run/containerd-w", "/var/lib/kubelet/pod-resources", "/etc/kubernetes-w"),
]


@pytest.mark.parametrize("path", SECRET)
def test_directories_that_give_access_to_the_host_are_secret(path: str) -> None:
    assert is_secret(path)


@pytest.mark.parametrize("path", ALLOWED)
def test_another_directory_is_not_secret(path: str) -> None:
    assert not is_secret(path)


def test_no_option_and_no_configuration_mounts_a_secret_directory(
    short_dir: Path, cli: CommandLine
) -> None:
    text = "version: 1\nnamespace: a.example\nresources: [{name: w, match: [{path: %s/w}]}]\n"
    (short_dir / "main.yaml").write_text(text % "/etc/kubernetes/pki")
    author = ["run", "w:W", "--domain", "a.example"]
    for words in (
        [*author, "--mount", "/etc:/host/etc"],
        [*author, "--mount", "/root:/w:rw"],
        ["simulate", "--mode-file", "/etc/kubernetes/mode"],
        ["expose", "--config", f"{short_dir}/main.yaml"],
    ):
        err = cli("manifests", *words, code=2).err
        assert "has secrets or sockets of the host: use a sep" in err, words
