"""Texts of strangers in each format that we print."""

import json
import shlex
import subprocess

import pytest
import yaml

from kubedevices.cli.shared.output import dump
from kubedevices.errors import safe_text
from tests.strangers import PLANT, assert_harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("widget-3 ä 漢", "widget-3 ä 漢"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\nforged", r"a\nforged"),
        ("a\u2028forged", r"a\u2028forged"),
        ("a\u202eb\x9b\x7f\ud800", r"a\u202eb\x9b\x7f\ud800"),
        ("::error::no", r"\x3a:error::no"),
        ("  ::error::no", r"  \x3a:error::no"),
        ("gpu::0", "gpu::0"),
        ("a ##[error]no", r"a #\x23[error]no"),
        ("##vso[task]", r"#\x23vso[task]"),
        ("##teamcity[x]", r"#\x23teamcity[x]"),
        ("## heading", "## heading"),
    ],
)
def test_a_line_shows_what_a_text_has_but_does_not_obey_it(text: str, shown: str) -> None:
    """Everything printable stays as it is; an escaped line is not escaped again."""
    assert safe_text.one_line(text) == shown
    assert safe_text.one_line(shown) == shown


def test_a_text_of_several_lines_keeps_its_line_breaks_and_tabs() -> None:
    """Every line of it is escaped."""
    text = "a\tb\n::error::no\n\x1bc\n"
    assert safe_text.lines(text) == "a\tb\n\\x3a:error::no\n\\x1bc\n"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_document_has_the_same_text_without_one_harmful_character(output: str) -> None:
    """A program that reads the JSON or the YAML gets the text of the stranger unchanged."""
    document = {"id": PLANT, PLANT: ["ä", "\x7f", "\U000e0001", f"{'word ' * 30}::error::no"]}
    printed = dump(document, output)
    assert_harmless(printed)
    assert (json.loads if output == "json" else yaml.safe_load)(printed) == document


def test_json_text_keeps_letters_of_every_language() -> None:
    """Only unprintable characters become escapes."""
    assert safe_text.json_text({"ä": "漢\u202e"}) == '{"ä": "漢\\u202e"}'


@pytest.mark.parametrize("tokens", [1, 2, 3, 10_000])
def test_the_parts_of_a_json_text_are_the_text(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever they begin, each alone is as harmless as the whole."""
    monkeypatch.setattr(safe_text, "_TOKENS", tokens)
    document = {"id": PLANT, PLANT: ["ä", "\x7f", "::error::no", {}, 1.5, None], "::x": "##[y]"}
    parts = [*safe_text.json_parts(document)]
    assert "".join(parts) == safe_text.json_text(document, indent=2)
    assert [safe_text.lines(each) for each in parts] == parts


@pytest.mark.parametrize("word", [PLANT, "it's", "\\", "::x", "##[x]", "two words", "", "ä"])
def test_a_shell_reads_each_word_as_it_was(word: str) -> None:
    """The line itself has no unprintable character."""
    line = safe_text.shell_line(["printf", "%s", word])
    assert_harmless(line)
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=30, check=True)
    assert done.stdout == word.encode()


def test_usual_words_are_quoted_as_every_shell_reads_them() -> None:
    """`$'…'`, which old shells do not know, is only for words that need it."""
    words = ["--env=A=it's", "--device=/dev/null", "ä b"]
    assert safe_text.shell_line(words) == shlex.join(words)
