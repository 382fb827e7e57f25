"""Address and credentials of the API server."""

import base64
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kubedevices.dra.kubeconfig import ApiAccess, find_access, read_kubeconfig
from kubedevices.dra.secret import Secret
from kubedevices.errors import CannotRead, UsageError


def kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    document = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": "https://api:6443", **cluster}}],
        "users": [{"name": "me", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def key_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key."""
    made = tmp_path_factory.mktemp("pki")
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=me"
    subprocess.run(
        [*words.split(), "-keyout", made / "key", "-out", made / "crt"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return made / "crt", made / "key"


def test_a_token_and_files_are_read(tmp_path: Path) -> None:
    """Relative paths are those of the file's directory."""
    file = kubeconfig(tmp_path / "config", {"token": "secret"}, **{"certificate-authority": "ca"})
    access = read_kubeconfig(file)
    assert access == ApiAccess("https://api:6443", ca=tmp_path / "ca", token=Secret("secret"))
    token = access.read_token()
    assert token is not None
    assert token.reveal() == "secret"
    assert read_kubeconfig(kubeconfig(file, {"tokenFile": "token"})).token == tmp_path / "token"


@pytest.mark.parametrize("is_data", [False, True])
def test_a_client_certificate_is_loaded(
    is_data: bool, key_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """From files, or from the kubeconfig itself; the server's certificate too."""
    words: dict[str, Any] = {}
    for name, path in zip(("client-certificate", "client-key"), key_pair, strict=True):
        data = base64.b64encode(path.read_bytes()).decode()
        words |= {f"{name}-data": data} if is_data else {name: str(path)}
    ca = base64.b64encode(key_pair[0].read_bytes()).decode()
    file = kubeconfig(tmp_path / "config", words, **{"certificate-authority-data": ca})
    context = read_kubeconfig(file).tls()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_a_ca_that_was_replaced_counts_for_the_next_connection(
    key_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """For some time, a cluster has both the new CA and the old."""
    authority = tmp_path / "ca"
    access = ApiAccess("https://api", ca=authority)
    certificate = key_pair[0].read_text()
    counts = []
    for name in ("one", "two"):
        command = f"openssl req -x509 -key {key_pair[1]} -subj /CN={name} -out {tmp_path / name}"
        subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
        certificate += (tmp_path / name).read_text()
        authority.write_text(certificate)
        context = access.tls()
        assert context is not None
        counts.append(len(context.get_ca_certs()))
    assert counts == [2, 3]


def test_a_key_that_does_not_belong_to_the_certificate_is_refused(
    key_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """So the pair is really loaded."""
    access = ApiAccess("https://api", client_certificate=b"none", client_key=key_pair[1])
    with pytest.raises(OSError, match=r"PEM|SSL"):
        access.tls()


@pytest.mark.parametrize(
    ("user", "word"),
    [({"exec": {"command": "aws"}}, "runs a program"), ({"client-key-data": "%"}, "client-key")],
)
def test_an_unusable_user_is_refused_with_the_reason(
    user: dict[str, Any], word: str, tmp_path: Path
) -> None:
    """The error begins with the name of the file."""
    with pytest.raises(UsageError, match=word):
        read_kubeconfig(kubeconfig(tmp_path / "config", user))


@pytest.mark.parametrize("text", ["[", "a", "{}", '{"current-context": "x", "contexts": []}'])
def test_a_file_that_is_no_kubeconfig_is_refused(text: str, tmp_path: Path) -> None:
    """Without a traceback."""
    (tmp_path / "config").write_text(text)
    with pytest.raises(UsageError, match="config"):
        read_kubeconfig(tmp_path / "config")


def test_a_missing_kubeconfig_is_an_error_of_the_file(tmp_path: Path) -> None:
    """It is not a usage error."""
    with pytest.raises(CannotRead):
        read_kubeconfig(tmp_path / "config")


def test_the_option_overrides_the_variable_and_the_variable_the_pod(tmp_path: Path) -> None:
    """In a pod no option is needed."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(UsageError, match="--kubeconfig"):
        find_access(None, pod, account_dir=tmp_path)
    (tmp_path / "token").write_text("t")
    in_pod = find_access(None, pod, account_dir=tmp_path)
    assert in_pod == ApiAccess(
        "https://10.0.0.1:443", ca=tmp_path / "ca.crt", token=tmp_path / "token"
    )
    v6 = find_access(None, pod | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, account_dir=tmp_path)
    assert v6.server == "https://[fd00::1]:443"
    pod["KUBECONFIG"] = str(kubeconfig(tmp_path / "variable", {"token": "variable"}))
    assert find_access(None, pod, account_dir=tmp_path).token == Secret("variable")
    with pytest.raises(CannotRead, match=r"/gone: No such file .*; the variable KUBECONFIG"):
        find_access(None, {"KUBECONFIG": str(tmp_path / "gone")})
    option = kubeconfig(tmp_path / "option", {"token": "option"})
    assert find_access(option, pod, account_dir=tmp_path).token == Secret("option")
