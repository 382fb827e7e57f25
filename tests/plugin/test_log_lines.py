"""Log lines: one line per record, with the texts of strangers escaped."""

import logging
import re
import subprocess
import sys
from pathlib import Path

from kubedevices.plugin.log_lines import TextLines
from tests.strangers import PLANT, assert_harmless

SCRIPT = """
import logging, sys
from pathlib import Path
import kubedevices as kd

class Nothing(kd.PolledScanner):
    def list_devices(self):
        logging.getLogger("nothing").warning("two\\nlines")
        raise SystemExit(4)

kd.run(Nothing(), domain="example.com", socket_dir=Path(sys.argv[1]))
"""


def test_a_log_record_of_a_plugin_is_one_line() -> None:
    """The traceback of a record follows in lines of its own, with escapes."""
    form = TextLines(verbose=True)
    record = logging.LogRecord("x", logging.INFO, "f", 1, "id %s", (PLANT,), None)
    assert "\n" not in form.format(record)
    assert_harmless(form.format(record))
    try:
        raise ValueError("\x1b[2J\r##[error]")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    record.exc_text = None
    assert "Traceback" in form.format(record)
    assert_harmless(form.format(record))


def test_a_script_logs_as_the_command_line_does(short_dir: Path) -> None:
    """`kd.run` writes the same line as `kubedevices run`."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(short_dir)],
        stderr=subprocess.PIPE, text=True, timeout=30, check=False,
    )  # fmt: skip
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.search(rf"^{stamp} WARNING nothing: two\\nlines$", done.stderr, re.MULTILINE), done
