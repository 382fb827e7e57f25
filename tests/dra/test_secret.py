"""Planted secrets: no message, log line, `repr` or traceback shows them."""

import asyncio
import base64
import copy
import dataclasses
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubedevices.cli import main
from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.kubeconfig import ApiAccess, read_kubeconfig
from kubedevices.dra.secret import Secret
from kubedevices.errors import ApiRefused, ApiUnreachable, KubedevicesError, UsageError

PLANTED = "pLaNtEd"
TOKEN = f"{PLANTED}-token"
KEY = base64.b64encode(f"{PLANTED}-key".encode()).decode()
DATA = [PLANTED, KEY, KEY[:12], base64.b64encode(TOKEN.encode()).decode()[:12]]


def document(user: Any, server: Any = "https://127.0.0.1:1", **more: Any) -> dict[str, Any]:
    return {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": user}],
    } | more


BAD: dict[str, str] = {
    name: json.dumps(found)
    for name, found in {
        "line break": document({"token": f"{TOKEN}\n"}),
        "line break inside": document({"token": f"{TOKEN}\nX-Header: x"}),
        "no ASCII": document({"token": f"{TOKEN}\u00fc"}),
        "blank": document({"token": f"{TOKEN} x"}),
        "list as token": document({"token": [TOKEN]}),
        "object as token": document({"token": {TOKEN: TOKEN}}),
        "user is text": document(TOKEN),
        "users is a mapping": document({}, users={TOKEN: {"token": TOKEN}}),
        "key is no base64": document({"client-key-data": f"{KEY}!{TOKEN}"}),
        "key is a number": document({"client-key-data": 7, "token": TOKEN}),
        "password": document({"username": "me", "password": TOKEN}),
        "exec": document({"exec": {"command": "x", "env": [{"name": "T", "value": TOKEN}]}}),
        "provider": document({"auth-provider": {"config": {"access-token": TOKEN}}}),
        "password in the address": document({}, f"https://me:{TOKEN}@127.0.0.1:1"),
        "token as the address": document({}, TOKEN),
        "bad port": document({}, f"https://127.0.0.1:{TOKEN}"),
        "unknown context": document({}, **{"current-context": TOKEN}),
    }.items()
} | {
    "broken text": f'{{"users": [{{"user": {{"token": "{TOKEN}',
    "broken YAML": f"users:\n- user:\n    token: {TOKEN}\n   x: : {TOKEN}",
    "undefined alias": f"token: *{TOKEN}",
    "unknown tag": f"token: !{TOKEN} x",
    "duplicate anchor": f"a: &{TOKEN} 1\nb: &{TOKEN} 2",
    "block with a line break": "users:\n- user:\n    token: |\n      " + TOKEN + "\n",
    "deep": "[" * 500 + TOKEN,
    "no mapping": TOKEN,
    "a control character": f"token: {TOKEN}\x01",
}

VERBS: dict[str, Callable[[Path], list[str]]] = {
    "simulate": lambda _: ["simulate", "--number-devices", "1", "--mode", "dra"],
    "expose": lambda d: [
        *("expose", "--config", str(d / "expose.yaml"), "--mode", "split"),
        *("--dra-devices", "widget/null"),
    ],
    "run": lambda d: [
        *("run", f"{d / 'widgets.py'}:Widgets", "--domain", "example.com"),
        *("--mode-file", str(d / "mode")),
    ],
    "proxy": lambda d: [
        *("proxy", "--mode", "dra", "--plugin-dir", str(d / "in"), "--state-dir", str(d / "s")),
    ],
}
SCANNER = """
import kubedevices as kd
class Widgets(kd.PolledScanner):
    def list_devices(self):
        return kd.DeviceTree({"widget": [kd.Device("w0")]})
"""


def assert_hidden(text: str) -> None:
    for part in DATA:
        assert part not in text


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("bad", BAD)
def test_no_verb_shows_a_secret_of_a_bad_kubeconfig(
    bad: str,
    verb: str,
    short_dir: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error names the file, and is one of wrong usage."""
    caplog.set_level(logging.DEBUG)
    file = short_dir / "config"
    file.write_bytes(BAD[bad].encode())
    resource = "{name: widget, match: [{path: /dev/null}]}"
    text = f"version: 1\nnamespace: example.com\nresources:\n- {resource}\n"
    (short_dir / "expose.yaml").write_text(text)
    (short_dir / "widgets.py").write_text(SCANNER)
    (short_dir / "mode").write_text("dra")
    options = ["--kubelet-dir", str(short_dir / "k"), "--kubeconfig", str(file)]
    assert main([*VERBS[verb](short_dir), *options]) == 2
    told = capfd.readouterr()
    assert str(file) in told.err
    assert_hidden(told.out + told.err + caplog.text)


@pytest.mark.parametrize("bad", BAD)
def test_no_traceback_shows_a_secret(bad: str, tmp_path: Path) -> None:
    """Nor do the errors that are chained to an error, with or without their texts."""
    (tmp_path / "config").write_bytes(BAD[bad].encode())
    with pytest.raises(UsageError) as refused:
        read_kubeconfig(tmp_path / "config")
    assert_hidden("".join(traceback.format_exception(refused.value)))
    error: BaseException | None = refused.value
    while error is not None:
        assert_hidden(f"{error!r} {error.args!r} {vars(error)!r}")
        error = error.__cause__ or error.__context__


def test_a_good_kubeconfig_is_read_and_no_object_shows_its_secrets(tmp_path: Path) -> None:
    """Neither `repr` nor a copy as plain data; JSON and pickle refuse them."""
    user = {"token": TOKEN, "client-key-data": KEY, "client-certificate-data": "eA=="}
    (tmp_path / "config").write_text(json.dumps(document(user)))
    access = read_kubeconfig(tmp_path / "config")
    assert isinstance(access.token, Secret)
    assert access.token.reveal() == TOKEN
    assert isinstance(access.client_key, Secret)
    assert access.client_key.reveal_bytes() == f"{PLANTED}-key".encode()
    plain = dataclasses.asdict(access)
    copied = copy.deepcopy(access)
    assert copied == access
    client = ApiClient(access)
    assert_hidden(f"{access} {access!r} {plain} {copied!r} {vars(client)} {access.token}")
    assert_hidden(f"{access.token!s} {[access.token]} %s %r" % (access.token, access.client_key))
    for dump in (json.dumps, pickle.dumps):
        with pytest.raises(TypeError):
            dump(access.token)
    with pytest.raises(OSError) as refused:  # noqa: PT011  # of OpenSSL: its class has no text
        access.tls()
    assert_hidden("".join(traceback.format_exception(refused.value)))


@pytest.mark.parametrize("text", [f"{TOKEN}\nx: y", f"{TOKEN}\u00fc", "", f"{TOKEN}\0"])
async def test_a_bad_token_in_a_file_is_an_error_of_the_call(text: str, tmp_path: Path) -> None:
    """The kubelet may replace the file: the next call reads the file again."""
    token = tmp_path / "token"
    token.write_text(text)
    api = ApiClient(ApiAccess("http://127.0.0.1:1", token=token))
    with pytest.raises(ApiUnreachable, match="the token in") as refused:
        await api.get_node("node1")
    assert_hidden("".join(traceback.format_exception(refused.value)))
    assert str(token) in str(refused.value)


async def test_an_endless_token_is_not_read(tmp_path: Path) -> None:
    """Only a regular file of at most 64 KiB is a token."""
    token = tmp_path / "token"
    for target in ("/dev/zero", tmp_path):
        token.symlink_to(target)
        with pytest.raises(ApiUnreachable, match="not a regular file"):
            await ApiClient(ApiAccess("http://127.0.0.1:1", token=token)).get_node("node1")
        token.unlink()
    token.write_text("x" * 100_000)
    with pytest.raises(KubedevicesError, match="more than 65536 bytes"):
        await ApiClient(ApiAccess("http://127.0.0.1:1", token=token)).get_node("node1")


ECHO = json.dumps({"kind": "Status", "reason": "Unauthorized", "message": f"no: Bearer {TOKEN}"})
ESCAPED = json.dumps({"message": TOKEN}).replace("pL", "\\u0070L")
# A text is cut at 500 characters: the first part of the token must not stay before the cut.
LONG = json.dumps({"message": f"{TOKEN:x>505}"}).replace("pL", "\\u0070L")
ECHOES = {
    "escapes before a cut": f"HTTP/1.1 401 no\r\nContent-Length: {len(LONG)}\r\n\r\n{LONG}",
    "escapes": f"HTTP/1.1 401 no\r\nContent-Length: {len(ESCAPED)}\r\n\r\n{ESCAPED}",
    "refusal": f"HTTP/1.1 401 Unauthorized\r\nContent-Length: {len(ECHO)}\r\n\r\n{ECHO}",
    "refusal without JSON": f"HTTP/1.1 403 no\r\nContent-Length: {len(TOKEN)}\r\n\r\n{TOKEN}",
    "answer of another shape": f"HTTP/1.1 200 OK\r\nContent-Length: {len(TOKEN)}\r\n\r\n{TOKEN}",
    "an object": "HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n"
    + json.dumps({"metadata": TOKEN}).ljust(70),
    "status line": f"HTTP/1.1 {TOKEN} {TOKEN}\r\n\r\n",
    "header": f"HTTP/1.1 200 OK\r\n{TOKEN}\r\n\r\n",
    "length": f"HTTP/1.1 200 OK\r\nContent-Length: {TOKEN}\r\n\r\n",
}


@pytest.mark.parametrize("kind", ECHOES)
async def test_a_server_that_repeats_the_token_does_not_bring_it_into_a_message(kind: str) -> None:
    """Some servers and proxies answer with the headers that they got: the message hides it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert f"Bearer {TOKEN}".encode() in await reader.readuntil(b"\r\n\r\n")
        writer.write(ECHOES[kind].encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        api = ApiClient(ApiAccess(f"http://127.0.0.1:{port}", token=Secret(TOKEN)))
        with pytest.raises((ApiRefused, ApiUnreachable)) as refused:
            await api.get_node("node1")
    error = refused.value
    assert_hidden(str(vars(api)))
    assert_hidden(f"{error} {error!r} {vars(error)}")
    assert_hidden("".join(traceback.format_exception(error)))
