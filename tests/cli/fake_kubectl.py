"""A kubectl whose cluster is a JSON file: as much of one as `deploy` asks for.

It answers in the process of the test, or is run as a program that finds the file in $CLUSTER.

The file has `objects`; `refuse` says which commands, by their beginning, fail with which words;
`refuse_kind` may not be applied; `status` is
what a DaemonSet has as soon as it is applied; every command is added to `commands`.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SHORT = {"pods": "pod", "events": "event", "secrets": "secret", "gadgets.example.com": "gadget"}
SHORT |= {kind: kind for kind in ("deviceclass", "securitycontextconstraints")}


def run_in_process(
    file: Path, command: Sequence[str], text: str
) -> "subprocess.CompletedProcess[str]":
    """Do one command as `subprocess.run` does, without a process: a start of Python is slow."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(file, command[1:], text)
        except SystemExit as end:
            print(end.code, file=err)
            code = 1
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def main(file: Path, arguments: Sequence[str], text: str) -> int:
    """Do one command on the cluster in `file`; `text` is its standard input."""
    state = json.loads(file.read_text())
    assert arguments[0] == "--namespace"
    namespace, *words = arguments[1:]
    state["commands"].append(" ".join(words))
    file.write_text(json.dumps(state))
    for beginning, reason in state["refuse"].items():
        if " ".join(words).startswith(beginning):
            print(f"Error from server {reason}", file=sys.stderr)
            return 1
    verb, *rest = words
    options = dict(each.removeprefix("--").partition("=")[::2] for each in rest if each[0] == "-")
    names = [each for each in rest if each[0] != "-"]
    state["stdin"] = text
    print(VERBS[verb](state, namespace, names, options), end="")
    del state["stdin"]
    file.write_text(json.dumps(state))
    return 0


def chosen(state: Any, namespace: str, names: list[str], options: dict[str, str]) -> list[Any]:
    """Return the objects that kinds, names and selectors mean."""
    kinds, name = names[0].split(","), names[1] if len(names) > 1 else ""
    if "/" in names[0]:
        kinds, name = [names[0].partition("/")[0]], names[0].partition("/")[2]
    kinds = [SHORT.get(kind, kind.removesuffix("s")) for kind in kinds]
    labels = dict(each.split("=") for each in options.get("selector", "").split(",") if each)
    name = options.get("field-selector", f"metadata.name={name}").partition("=")[2]
    return [
        each
        for each in state["objects"]
        if each["kind"].lower() in kinds
        and (
            "all-namespaces" in options or each["metadata"].get("namespace", namespace) == namespace
        )
        and name in ("", each["metadata"]["name"])
        and labels.items() <= (each["metadata"].get("labels") or {}).items()
    ]


def get(state: Any, namespace: str, names: list[str], options: dict[str, str]) -> str:
    """Print a List, a single object where one was named, nothing where there is none."""
    if options.get("filename") == "-":
        wanted = [(each["kind"], each["metadata"]["name"]) for each in given(state)]
        found = [
            each
            for each in state["objects"]
            if (each["kind"], each["metadata"]["name"]) in wanted
            and each["metadata"].get("namespace", namespace) == namespace
        ]
        return json.dumps({"items": found})
    found = chosen(state, namespace, names, options)
    if len(names) > 1 or "/" in names[0]:
        return json.dumps(found[0]) if found else ""
    return json.dumps({"items": found})


def given(state: Any) -> list[Any]:
    """Return what was given on standard input."""
    return list(json.loads(state["stdin"])["items"])


def apply(state: Any, namespace: str, names: list[str], options: dict[str, str]) -> str:
    """Put objects in the place of those of the same kind and name."""
    said = []
    documents = given(state)
    if any(each["kind"] == state.get("refuse_kind") for each in documents):
        sys.exit("Error from server (Forbidden)")
    for each in documents:
        key = each["kind"], each["metadata"]["name"]
        if each["kind"] == "DaemonSet":
            each |= {"status": state["status"]}
        each["metadata"] |= {"uid": os.urandom(8).hex(), "generation": 1}
        state["objects"] = [
            other
            for other in state["objects"]
            if (other["kind"], other["metadata"]["name"]) != key
            or other["metadata"].get("namespace", namespace) != namespace
        ]
        state["objects"].append(each)
        said.append(f"{key[0].lower()}/{key[1]} applied\n")
    return "".join(said)


def delete(state: Any, namespace: str, names: list[str], options: dict[str, str]) -> str:
    """Delete what is selected; of a namespace also all that is in it."""
    gone = chosen(state, namespace, names, options)
    if names[0] == "namespace" and gone:
        gone += [
            each for each in state["objects"] if each["metadata"].get("namespace") == namespace
        ]
    state["objects"] = [each for each in state["objects"] if each not in gone]
    return "".join(f"{each['kind'].lower()}/{each['metadata']['name']} deleted\n" for each in gone)


def api_resources(state: Any, namespace: str, names: list[str], options: dict[str, str]) -> str:
    """Print the kinds that can be in a namespace."""
    kinds = ("configmaps", "daemonsets", "serviceaccounts", "resourcequotas", "pods", "secrets")
    return "".join(f"{kind}\n" for kind in (*kinds, "events", "gadgets.example.com"))


def logs(state: Any, namespace: str, names: list[str], options: dict[str, str]) -> str:
    """Print the log of every pod."""
    text: str = state["log"]
    return text


VERBS = {
    "get": get,
    "apply": apply,
    "create": apply,
    "delete": delete,
    "api-resources": api_resources,
    "logs": logs,
}

if __name__ == "__main__":
    sys.exit(main(Path(os.environ["CLUSTER"]), sys.argv[1:], sys.stdin.read()))
