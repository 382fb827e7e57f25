"""The options of log lines, which stand before or after every verb."""

import argparse
from types import ModuleType

LOG_LEVELS = ("debug", "info", "warning", "error")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the log options, which may stand before or after the verb.

    An option that is missing has no default here (SUPPRESS), so that the parser of the verb does
    not overwrite a value from before the verb.
    """
    group = parser.add_argument_group("log lines (on stderr)")
    group.add_argument(
        "--log-level", choices=LOG_LEVELS, default=argparse.SUPPRESS, help="which events are logged"
    )
    group.add_argument(
        "--log-format",
        choices=("text", "json"),
        default=argparse.SUPPRESS,
        help="text (default), or json for log collectors",
    )


def log_options(top: argparse.Namespace, verb: ModuleType) -> argparse.Namespace:
    """Return the log options of a verb, as given before the verb or by default."""
    return argparse.Namespace(
        log_level=getattr(top, "log_level", getattr(verb, "LOG_LEVEL", "warning")),
        log_format=getattr(top, "log_format", "text"),
    )
