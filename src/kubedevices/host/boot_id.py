"""Which boot of this machine is running. For whoever must know that a file is from before it."""

from pathlib import Path

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(file: Path = BOOT_ID_FILE) -> str:
    """Return the boot's ID, empty when the machine does not tell; then nothing is of this boot."""
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""
