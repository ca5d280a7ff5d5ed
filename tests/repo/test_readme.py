"""README in four languages: its commands parse, its hosts file loads, reports and links are real."""

import re
import shlex
from pathlib import Path

import pytest

from netdoctor import cli
from netdoctor.inventory import load

ROOT = Path(__file__).parents[2]
TRANSLATIONS = ("README.ja.md", "README.ko.md", "README.zh.md")
NAMES = ("README.md", *TRANSLATIONS)
FIRST_REPORT = (ROOT / "docs" / "first-report.md").read_text("utf-8")
BLOCK = re.compile(r"^ *```\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
VERDICTS = ("NOT READY", "READY", "UNDECIDED")

every_readme = pytest.mark.parametrize("name", NAMES)


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def blocks(name: str) -> list[list[str]]:
    """The lines of each block of code."""
    return [[line.strip() for line in text.splitlines()] for text in BLOCK.findall(text_of(name))]


def reports(name: str) -> list[list[str]]:
    return [lines for lines in blocks(name) if lines[0].startswith(VERDICTS)]


def commands(name: str) -> list[str]:
    inline = re.findall(r"`(netdoctor [^`]+)`", BLOCK.sub("", text_of(name)))
    lines = [line for lines in blocks(name) for line in lines]
    return inline + [
        found[1] for line in lines if (found := re.search(r"^(?:verify +)?(netdoctor .*)", line))
    ]


@every_readme
def test_netdoctor_takes_every_command(name: str) -> None:
    found = commands(name)
    assert "netdoctor gate hosts.txt -- torchrun ..." in found
    for command in found:
        words = shlex.split(command)[1:]
        words = words[: words.index("--") + 2] if "--" in words else words
        assert cli.build_parser(words[0]).parse_args(words).command == words[0], command


@every_readme
def test_the_hosts_file_loads(name: str, tmp_path: Path) -> None:
    (found,) = (lines for lines in blocks(name) if lines[0] == "gpu01")
    path = tmp_path / "hosts.txt"
    path.write_text("\n".join(found), "utf-8")
    targets = load([str(path)]).targets
    assert len(targets) == 17
    assert (targets[-1].user, targets[-1].port) == ("ml", 2222)


@every_readme
def test_reports_are_lines_of_the_first_report(name: str) -> None:
    known = {line.strip() for line in FIRST_REPORT.splitlines()}
    for lines in reports(name):
        assert set(lines) <= known


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_a_translation_has_the_install_line_the_three_verdicts_and_the_exit_codes(name: str) -> None:
    assert blocks(name)[0] == next(lines for lines in blocks("README.md") if "pip install" in lines[0])
    assert tuple(lines[0].split("  ")[0] for lines in reports(name)) == VERDICTS
    codes = re.findall(r"^\| (\d) \|", text_of("README.md"), re.MULTILINE)
    assert re.findall(r"^\| (\d) \|", text_of(name), re.MULTILINE) == codes


@pytest.mark.parametrize("name", [*NAMES, "docs/README.md", "docs/first-report.md"])
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(name)):
        assert (page.parent / target).exists(), target
