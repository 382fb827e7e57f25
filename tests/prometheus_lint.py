"""Checks the text of a /metrics page: the grammar of the format, and the rules of promlint.

The grammar is https://prometheus.io/docs/instrumenting/exposition_formats (version 0.0.4). The
rules are those of `promtool check metrics`, from promlint of prometheus/client_golang.
"""

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
_SAMPLE = re.compile(
    rf"(?P<name>{_NAME})(?:\{{(?P<labels>{_LABEL}(?:,{_LABEL})*)\}})? (?P<value>\S+)"
)
_COMMENT = re.compile(rf"# (?P<what>HELP|TYPE) (?P<name>{_NAME}) (?P<text>.*)")
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}

# fmt: off
BASE_UNITS = {
    "amperes", "bytes", "celsius", "grams", "joules", "kelvin", "meters", "metres", "seconds",
    "volts",
}
OTHER_UNITS = {
    "minutes", "hours", "days", "weeks", "kelvins", "fahrenheit", "rankine", "inches", "yards",
    "miles", "bits", "calories", "pounds", "ounces",
}
PREFIXES = {
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega",
    "mibi", "giga", "gibi", "tera", "tebi", "peta", "pebi",
}
ABBREVIATIONS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
# fmt: on


@dataclass
class Family:
    """One metric of the page."""

    name: str
    help: str = ""
    type: str = "untyped"
    series: list[str] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)


def lint(text: str) -> list[str]:
    """Return every complaint about the page; raise AssertionError if the page cannot be parsed."""
    return [
        f"{family.name}: {complaint}" for family in read(text) for complaint in _complaints(family)
    ]


def read(text: str) -> list[Family]:
    """Parse the page; raise AssertionError if it does not match the grammar."""
    assert text.endswith("\n"), "the last line has no end"
    families: dict[str, Family] = {}
    current: Family | None = None
    for line in text.splitlines():
        if (comment := _COMMENT.fullmatch(line)) is not None:
            name, what = comment["name"], comment["what"].lower()
            if what == "help":
                assert name not in families, f"told twice: {line}"
                current = families[name] = Family(name)
            assert current is not None, f"stands alone: {line}"
            assert current.name == name, f"stands alone: {line}"
            assert not current.series, f"after its samples: {line}"
            setattr(current, what, comment["text"])
            assert current.type in _TYPES, line
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, f"no sample: {line}"
        float(sample["value"].replace("Inf", "inf"))
        assert current is not None, f"without HELP and TYPE: {line}"
        ours = [current.name + suffix for suffix in _SUFFIXES.get(current.type, ("",))]
        assert sample["name"] in ours, f"not of {current.name}: {line}"
        series = line.rpartition(" ")[0]
        assert series not in current.series, f"told twice: {line}"
        current.series.append(series)
        current.labels |= set(re.findall(r'([a-zA-Z0-9_]+)="', sample["labels"] or ""))
    return [*families.values()]


def _complaints(family: Family) -> list[str]:
    name, kind = family.name, family.type
    words = name.split("_")
    is_total = name.endswith("_total")
    is_distribution = kind in ("histogram", "summary")
    own = family.labels - ({"le"} if kind == "histogram" else set())
    rules = {
        "no help text": not family.help,
        "no samples": not family.series,
        "use base units": any(map(_is_other_unit, words)),
        'counter metrics should have "_total" suffix': kind == "counter" and not is_total,
        'only counters should have "_total" suffix': kind not in ("counter", "untyped")
        and is_total,
        'only gauges should have "_timestamp_seconds" suffix': (
            kind not in ("gauge", "untyped") and name.endswith("_timestamp_seconds")
        ),
        "suffix reserved for histograms": (
            kind not in ("untyped", "histogram") and name.endswith("_bucket")
        ),
        "suffix reserved for histograms and summaries": (
            kind != "untyped" and not is_distribution and name.endswith(("_count", "_sum"))
        ),
        "label reserved for histograms and summaries": bool(own & {"le", "quantile"}),
        "metric name should not include its type": bool(
            {"counter", "gauge", "summary", "histogram"} & set(words[1:])
        ),
        "metric names should not contain ':'": ":" in name,
        "names should be written in snake_case": any(
            re.search("[a-z][A-Z]", each) for each in (name, *family.labels)
        ),
        "names should not contain abbreviated units": bool(ABBREVIATIONS & set(words[1:])),
    }
    return [complaint for complaint, applies in rules.items() if applies]


def _is_other_unit(word: str) -> bool:
    """Whether a word is a unit but not a base unit."""
    if word in OTHER_UNITS:
        return True
    units = BASE_UNITS | OTHER_UNITS
    return any(word.startswith(each) and word.removeprefix(each) in units for each in PREFIXES)
