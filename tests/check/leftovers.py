"""Finds processes (by a mark in their environment) and mounts that a run may have left."""

from pathlib import Path

MARK = "KUBEDEVICES_TEST_MARK"


def processes_marked(mark: str) -> dict[int, str]:
    """Return the living processes that were started with this mark, and their commands."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command:  # a zombie has none
                    found[int(entry.name)] = command
        except OSError:
            continue
    return found


def mounts_of_runs() -> list[str]:
    """Return the mounts of this namespace that belong to a run."""
    text = Path("/proc/self/mountinfo").read_text()
    return [line for line in text.splitlines() if "kd-check-" in line]
