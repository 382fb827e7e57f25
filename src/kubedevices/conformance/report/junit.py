"""The report as JUnit XML. A warning is no failure there: it passes and says so in its output."""

from xml.etree import ElementTree as ET

from kubedevices.conformance.board import Result
from kubedevices.conformance.check import Status
from kubedevices.conformance.report.summary import Run, alone, words_about


def as_junit(run: Run) -> str:
    """Return the text of the file."""
    counts = run.counts
    numbers = {
        "tests": str(len(run.results)),
        "failures": str(counts["fail"]),
        "errors": "0",
        "skipped": str(counts["skip"]),
        "time": f"{run.seconds:.3f}",
    }
    root = ET.Element("testsuites", numbers)
    suite = ET.SubElement(root, "testsuite", {"name": _clean(run.plugin), **numbers})
    properties = ET.SubElement(suite, "properties")
    for title, words in run.about.items():
        ET.SubElement(properties, "property", {"name": title, "value": _clean(words)})
    for result in run.results:
        _add_case(suite, result)
    for log in run.logs[:1]:  # of the process that most checks met
        ET.SubElement(suite, "system-err").text = _clean(log.text)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ET.Element, result: Result) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        {
            "classname": result.check.theme,
            "name": f"{result.check.id} {_clean(result.resource)}",
            "time": f"{result.seconds:.3f}",
        },
    )
    evidence = _clean(result.verdict.evidence)
    text = "\n".join(f"{title}: {_clean(words)}" for title, words in words_about(alone(result)))
    if result.status is Status.FAIL:
        ET.SubElement(case, "failure", {"message": evidence, "type": "fail"}).text = text
    elif result.status is Status.SKIP:
        ET.SubElement(case, "skipped", {"message": evidence})
    else:
        warned = result.status is Status.WARN
        ET.SubElement(case, "system-out").text = f"warning\n{text}" if warned else evidence


def _clean(text: str) -> str:
    """Drop what XML cannot hold: a plugin's last words may be anything."""
    return "".join(
        each
        if each in "\t\n" or "\x20" <= each <= "\ud7ff" or "\ue000" <= each <= "\ufffd"
        else "?"
        for each in text
    )
