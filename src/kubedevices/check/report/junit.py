"""The report as JUnit XML.

Only findings that fail the run are failures. Another finding is a passed test with the finding in
its output. A known finding is a skipped test with its reason. A plugin may print anything, so all
texts are escaped: XML does not allow some characters, and a terminal would obey others.
"""

from collections import Counter
from xml.etree import ElementTree as ET

from kubedevices.check.check import Status
from kubedevices.check.report.expected import LEVELS
from kubedevices.check.report.summary import Run, as_finding, words_about
from kubedevices.check.results import CheckResult
from kubedevices.errors.safe_text import lines as escaped


def as_junit(run: Run) -> str:
    """Return the text of the file."""
    states = Counter(_state(run, result) for result in run.results)
    numbers = {
        "tests": str(len(run.results)),
        "failures": str(states["failure"]),
        "errors": "0",
        "skipped": str(states["skipped"]),
        "time": f"{run.seconds:.3f}",
    }
    root = ET.Element("testsuites", numbers)
    suite = ET.SubElement(root, "testsuite", {"name": escaped(run.plugin), **numbers})
    properties = ET.SubElement(suite, "properties")
    for title, words in run.about.items():
        ET.SubElement(properties, "property", {"name": title, "value": escaped(words)})
    for result in run.results:
        _add_case(suite, run, result)
    for log in run.logs[:1]:  # most checks used the first process
        ET.SubElement(suite, "system-err").text = escaped(log.text)
    return _text(root)


def as_junit_error(plugin: str, problem: str) -> str:
    """Return the text of the file if nothing could be checked."""
    numbers = {"tests": "1", "failures": "0", "errors": "1", "skipped": "0"}
    root = ET.Element("testsuites", numbers)
    suite = ET.SubElement(root, "testsuite", {"name": escaped(plugin), **numbers})
    case = ET.SubElement(suite, "testcase", {"classname": "check", "name": "can be checked"})
    ET.SubElement(case, "error", {"message": escaped(problem)})
    return _text(root)


def _text(root: ET.Element) -> str:
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ET.Element, run: Run, result: CheckResult) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        {
            "classname": result.check.theme,
            "name": f"{result.check.id} {escaped(result.resource)}",
            "time": f"{result.seconds:.3f}",
        },
    )
    evidence = escaped(result.verdict.evidence)
    texts = words_about(as_finding(result))
    text = "\n".join(f"{title}: {escaped(words)}" for title, words in texts)
    state, reason = _state(run, result), run.reason(result)
    if state == "failure":
        kind = {"message": evidence, "type": result.status.value}
        ET.SubElement(case, "failure", kind).text = text
    elif state == "skipped":
        message = f"known: {escaped(reason)}: {evidence}" if reason else evidence
        ET.SubElement(case, "skipped", {"message": message})
    else:
        warned = result.status in (Status.WARN, Status.FAIL)
        ET.SubElement(case, "system-out").text = f"warning\n{text}" if warned else evidence


def _state(run: Run, result: CheckResult) -> str:
    """Return `failure`, `skipped`, or `""` for a test that passes."""
    if result.status is Status.SKIP:
        return "skipped"
    if result.status not in (Status.FAIL, Status.WARN):
        return ""
    if run.reason(result):
        return "skipped"
    return "failure" if result.status in LEVELS[run.fail_on] else ""
