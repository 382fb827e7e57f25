"""The certificates, tokens and kubeconfig files of a cluster, made once."""

import json
import shutil
import subprocess
from pathlib import Path

from tests.kubernetes.single_node.layout import NODE, NODE_ADDRESS, SERVICE_ADDRESS, fail

_DAYS = 3650
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_CERTIFICATES = {
    "apiserver": "/CN=kube-apiserver",
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE}",
    "kubelet-client": "/O=system:masters/CN=kube-apiserver-kubelet-client",
}
_USERS = {
    "scheduler": ("system:kube-scheduler", ""),
    "controller-manager": ("system:kube-controller-manager", "system:masters"),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "admin": ("admin", "system:masters"),
}
"""By the name of a kubeconfig file: a user and its group."""

ADMIN_TOKEN = "admin-token"


def make_credentials(directory: Path) -> None:
    """Create all files in `directory` if they are not there. Needs the program openssl."""
    if (directory / "admin.kubeconfig").exists():  # written last
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    _make_certificates(directory)
    tokens = [f'{name}-token,{user},{name},"{group}"' for name, (user, group) in _USERS.items()]
    (directory / "tokens.csv").write_text("\n".join(tokens) + "\n")
    for name in _USERS:
        (directory / f"{name}.kubeconfig").write_text(_kubeconfig(name, directory / "ca.crt"))


def _make_certificates(directory: Path) -> None:
    addresses = (NODE_ADDRESS, SERVICE_ADDRESS, "127.0.0.1")
    hosts = ("localhost", "kubernetes.default.svc", NODE)
    names = [*(f"IP:{each}" for each in addresses), *(f"DNS:{each}" for each in hosts)]
    (directory / "names").write_text(f"subjectAltName={','.join(names)}\n")

    def openssl(*words: str) -> None:
        done = subprocess.run(
            ["openssl", *words], cwd=directory, capture_output=True, text=True, check=False
        )
        if done.returncode:
            fail(f"openssl {' '.join(words)}: {done.stderr}")

    days = ("-days", str(_DAYS))
    openssl(
        *("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.crt"),
        *("-subj", "/CN=test-ca", *days),
    )
    for name, subject in _CERTIFICATES.items():
        request = f"{name}.csr"
        openssl("req", *_NEW_KEY, "-keyout", f"{name}.key", "-out", request, "-subj", subject)
        openssl(
            *("x509", "-req", "-in", request, "-CA", "ca.crt", "-CAkey", "ca.key"),
            *("-CAcreateserial", *days, "-out", f"{name}.crt", "-extfile", "names"),
        )
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sa.key")
    openssl("ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")


def _kubeconfig(name: str, authority: Path) -> str:
    server = {"server": f"https://{NODE_ADDRESS}", "certificate-authority": str(authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": name, "user": {"token": f"{name}-token"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        }
    )
