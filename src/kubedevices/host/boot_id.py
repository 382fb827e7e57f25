"""The ID of the current boot. With it a program can tell that a file is from an earlier boot."""

from pathlib import Path

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(file: Path = BOOT_ID_FILE) -> str:
    """Return the ID of the current boot, empty if it cannot be read; empty never matches a file."""
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""
