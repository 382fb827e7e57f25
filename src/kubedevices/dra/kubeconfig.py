"""Address and credentials for the API server, from a kubeconfig or a service account. Blocking.

In a pod the kubelet replaces the token and the certificate of the server, so their files are read
for every connection. From a kubeconfig the current context is used: its server, its certificates,
and a token or a client certificate. Programs that create tokens (`exec`) are not supported.
"""

import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubedevices.errors import CannotRead, UsageError

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ADVICE = "give --kubeconfig FILE or set KUBECONFIG; in a pod neither is needed"


@dataclass(frozen=True)
class ApiAccess:
    """The address of an API server and the credentials for it.

    A `Path` is a file that is read for every connection; `bytes` are the content of a file.
    """

    server: str
    ca: Path | bytes | None = None
    token: str | Path = ""
    client_certificate: Path | bytes | None = None
    client_key: Path | bytes | None = None
    skip_verification: bool = False

    def headers(self) -> list[tuple[str, str]]:
        """Return the Authorization header; raises `OSError` if the token's file is missing."""
        token = self.token
        if isinstance(token, Path):
            token = token.read_text().strip()
        return [("Authorization", f"Bearer {token}")] if token else []

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings of a connection, None for plain HTTP; raises `OSError`."""
        if urlsplit(self.server).scheme == "http":
            return None
        if isinstance(self.ca, bytes):
            context = ssl.create_default_context(cadata=self.ca.decode())
        else:
            context = ssl.create_default_context(cafile=self.ca)
        if self.skip_verification:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_certificate is not None:
            _load_client(context, self.client_certificate, self.client_key)
        return context


def _load_client(
    context: ssl.SSLContext, certificate: Path | bytes, key: Path | bytes | None
) -> None:
    """Load certificate and key; data from the kubeconfig itself is never written to a disk."""
    if isinstance(certificate, Path) and not isinstance(key, bytes):
        context.load_cert_chain(certificate, key)
        return
    parts = [
        each.read_bytes() if isinstance(each, Path) else each or b"" for each in (certificate, key)
    ]
    # The ssl module reads a client certificate only from a path, so use a file in memory.
    memory = os.memfd_create("client certificate")
    try:
        os.write(memory, b"\n".join(parts))
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)


def find_access(
    kubeconfig: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> ApiAccess:
    """Return address and credentials of the API server, from the first source that exists.

    The sources are `kubeconfig`, the variable KUBECONFIG (its first file), and the service account
    of the pod. Raises `UsageError` if there is none, `CannotRead` for a file that cannot be read.
    """
    if kubeconfig is None and environment.get("KUBECONFIG"):
        kubeconfig = Path(environment["KUBECONFIG"].split(os.pathsep)[0])
    if kubeconfig is not None:
        return read_kubeconfig(kubeconfig)
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not (account_dir / "token").exists():
        raise UsageError(f"the address of the API server is unknown: {_ADVICE}")
    host = f"[{host}]" if ":" in host else host
    return ApiAccess(
        f"https://{host}:{port or 443}", ca=account_dir / "ca.crt", token=account_dir / "token"
    )


def read_kubeconfig(file: Path) -> ApiAccess:
    """Return server and credentials of the kubeconfig's current context.

    Raises `CannotRead`, and `UsageError` for a file that is not a usable kubeconfig.
    """
    import yaml  # noqa: PLC0415 - 2 MB that a driver in a pod does not need

    try:
        document = yaml.safe_load(file.read_text())
    except OSError as error:
        raise CannotRead(str(file), error.strerror or str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
    try:
        return _access(document, file.parent)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise UsageError(f"{file} is not a usable kubeconfig: {problem}") from error


def _access(document: Mapping[str, Any], directory: Path) -> ApiAccess:
    context = _named(document, "contexts", document["current-context"])["context"]
    cluster = _named(document, "clusters", context["cluster"])["cluster"]
    user = _named(document, "users", context["user"])["user"] or {}
    if "exec" in user or "auth-provider" in user:
        raise ValueError("its user runs a program; only tokens and certificates are supported")
    token_file = user.get("tokenFile")
    return ApiAccess(
        cluster["server"],
        ca=_content(cluster, "certificate-authority", directory),
        token=directory / token_file if token_file else user.get("token", ""),
        client_certificate=_content(user, "client-certificate", directory),
        client_key=_content(user, "client-key", directory),
        skip_verification=bool(cluster.get("insecure-skip-tls-verify")),
    )


def _named(document: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    found: list[Mapping[str, Any]] = [each for each in document[kind] if each["name"] == name]
    if not found:
        raise ValueError(f"there is no {name!r} among its {kind}")
    return found[0]


def _content(section: Mapping[str, Any], key: str, directory: Path) -> Path | bytes | None:
    if data := section.get(f"{key}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{key}-data: {error}") from error
    return directory / section[key] if section.get(key) else None
