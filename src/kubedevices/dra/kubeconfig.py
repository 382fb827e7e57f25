"""Address and credentials for the API server, from a kubeconfig or a service account. Blocking.

In a pod the kubelet replaces the token and the certificate of the server, so their files are read
for every connection. From a kubeconfig the current context is used: its server, its certificates,
and a token or a client certificate. Programs that create tokens (`exec`) are not supported.
"""

import base64
import contextlib
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubedevices.config.documents.shape import Shape, fit
from kubedevices.config.documents.yaml_text import USER, load_yaml
from kubedevices.dra.secret import Secret
from kubedevices.errors import CannotRead, NotYaml, UnusableCredentials, UsageError, WrongShape
from kubedevices.host import untrusted_files

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ADVICE = "give --kubeconfig FILE or set KUBECONFIG; in a pod neither is needed"


_KUBECONFIG: Shape = {
    "current-context!": str,
    "contexts!": [{"name!": str, "context!": {"cluster!": str, "user!": str, "namespace": str}}],
    "clusters!": [
        {
            "name!": str,
            "cluster!": {
                "server!": str,
                "certificate-authority": str,
                "certificate-authority-data": str,
                "insecure-skip-tls-verify": bool,
            },
        }
    ],
    "users!": [
        {
            "name!": str,
            "user": {
                "token": str,
                "tokenFile": str,
                "client-certificate": str,
                "client-certificate-data": str,
                "client-key": str,
                "client-key-data": str,
            },
        }
    ],
}
_TOKEN_LIMIT = 64 * 2**10
_VISIBLE = re.compile("[!-~]+")


@dataclass(frozen=True)
class ApiAccess:
    """The address of an API server and the credentials for it.

    A `Path` is a file that is read for every connection; `bytes` are the content of a file.
    """

    server: str
    ca: Path | bytes | None = None
    token: Secret | Path | None = None
    client_certificate: Path | bytes | None = None
    client_key: Path | Secret | None = None
    skip_verification: bool = False
    namespace: str = ""
    """The namespace of the kubeconfig's context, for names without a namespace."""

    def __post_init__(self) -> None:
        """Check the address. Raises `UnusableCredentials`, without the address."""
        if not _is_address(self.server):
            raise UnusableCredentials("its server is not an address like https://HOST:PORT")

    def read_token(self) -> Secret | None:
        """Return the token; raises `OSError` and `UnusableCredentials`."""
        if not isinstance(self.token, Path):
            return self.token
        data = untrusted_files.read_bytes(self.token, limit=_TOKEN_LIMIT, follow_links=True)
        return checked_token(data.decode("latin-1").strip(), f"the token in {self.token}")

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings of a connection, None for plain HTTP; raises `OSError`."""
        if urlsplit(self.server).scheme == "http":
            return None
        if isinstance(self.ca, bytes):
            context = ssl.create_default_context(cadata=self.ca.decode("ascii", "replace"))
        else:
            context = ssl.create_default_context(cafile=self.ca)
        if self.skip_verification:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_certificate is not None:
            _load_client(context, self.client_certificate, self.client_key)
        return context


def _is_address(text: str) -> bool:
    """Whether a text is an address without a user name and a password."""
    try:
        parts = urlsplit(text)
        has_port = parts.port != 0  # raises ValueError if it is no number
    except ValueError:
        return False
    is_plain = _VISIBLE.fullmatch(text) is not None and "@" not in parts.netloc
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain and has_port


def checked_token(token: str, where: str) -> Secret:
    """Return a token that an HTTP header can have; raises `UnusableCredentials` without it."""
    if _VISIBLE.fullmatch(token):
        return Secret(token)
    problem = "is empty, or has a line break or another character that no HTTP header can have"
    raise UnusableCredentials(f"{where} {problem}")


def _load_client(
    context: ssl.SSLContext, certificate: Path | bytes, key: Path | Secret | None
) -> None:
    """Load certificate and key; data from the kubeconfig itself is never written to a disk."""
    if isinstance(certificate, Path) and not isinstance(key, Secret):
        context.load_cert_chain(certificate, key, _no_password)
        return
    parts = [certificate.read_bytes() if isinstance(certificate, Path) else certificate]
    if key is not None:
        parts.append(key.read_bytes() if isinstance(key, Path) else key.reveal_bytes())
    # The ssl module reads a client certificate only from a path, so use a file in memory.
    memory = os.memfd_create("client certificate")
    try:
        os.write(memory, b"\n".join(parts))
        context.load_cert_chain(f"/proc/self/fd/{memory}", None, _no_password)
    finally:
        os.close(memory)


def _no_password() -> str:
    """Return a wrong password: without this, OpenSSL would wait for an answer on the terminal."""
    return ""


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
        try:
            return read_kubeconfig(kubeconfig)
        except CannotRead as error:
            reason = f"{error.reason}; the variable KUBECONFIG names it"
            raise CannotRead(error.path, reason) from error
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

    Raises `CannotRead`, and `UsageError` for a file that is not a usable kubeconfig. No error shows
    a value of the file: any of them may be a secret.
    """
    # Imported here, because a driver in a pod needs no YAML: it takes 2 MB.
    from kubedevices.config.yaml_source import read_content  # noqa: PLC0415

    content = read_content(file)
    try:
        document = load_yaml(content.decode("utf-8-sig"), USER)
        return _access(fit(document, _KUBECONFIG, "what kubectl reads"), file.parent)
    except NotYaml as error:
        place = f"line {error.line}, column {error.column}"
        problem = f"is not valid YAML at {place} (its text is not shown, it may be a secret)"
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    except WrongShape as error:
        problem = f"is not a usable kubeconfig: {error}"
    except UnusableCredentials as error:
        problem = f"is not a usable kubeconfig: {error.problem}"
    # Outside of the `except` blocks, so that no chained error has a value of the file.
    raise UsageError(f"{file} {problem}")


def _access(document: Mapping[str, Any], directory: Path) -> ApiAccess:
    context = _named(document, "contexts", document["current-context"])["context"]
    cluster = _named(document, "clusters", context["cluster"])["cluster"]
    user = _named(document, "users", context["user"]).get("user", {})
    if "exec" in user or "auth-provider" in user:
        raise UnusableCredentials(
            "its user runs a program; only tokens and certificates are supported"
        )
    if "username" in user or "password" in user:
        raise UnusableCredentials("its user has a password; API servers since 1.19 accept none")
    token_file = user.get("tokenFile")
    token = directory / token_file if token_file else None
    if token is None and user.get("token"):
        token = checked_token(user["token"], "the token of its user")
    key = _content(user, "client-key", directory)
    return ApiAccess(
        cluster["server"],
        ca=_content(cluster, "certificate-authority", directory),
        token=token,
        client_certificate=_content(user, "client-certificate", directory),
        client_key=Secret(key) if isinstance(key, bytes) else key,
        skip_verification=cluster.get("insecure-skip-tls-verify", False),
        namespace=context.get("namespace", ""),
    )


def _named(document: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    found: list[Mapping[str, Any]] = [each for each in document[kind] if each["name"] == name]
    if not found:
        raise UnusableCredentials(f"the name that its current context has is not among its {kind}")
    return found[0]


def _content(section: Mapping[str, Any], key: str, directory: Path) -> Path | bytes | None:
    if data := section.get(f"{key}-data"):
        with contextlib.suppress(ValueError):
            return base64.b64decode(data, validate=True)
        raise UnusableCredentials(f"{key}-data is not base64")
    return directory / section[key] if section.get(key) else None
