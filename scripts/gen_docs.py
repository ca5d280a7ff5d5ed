"""Write docs/checks/ and docs/lint/ from docstrings, the tables of docs/verdict.md and expect.md, and
what `explain log` looks for in a line before it tries an expression.

With --check nothing is written; exit 1 when a page differs from what the checks say.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gen_tables

from netdoctor.check import Check, Profile
from netdoctor.engine.assemble.families import sort_key
from netdoctor.engine.assemble.scope import SUBJECTS
from netdoctor.engine.registry import load_builtin
from netdoctor.explain.knowledge import load
from netdoctor.explain.literals import key_of, required
from netdoctor.lint.engine import rules
from netdoctor.lint.model import Kind, Rule

DOCS = Path(__file__).resolve().parent.parent / "docs"
CHECKS, LINT = DOCS / "checks", DOCS / "lint"
LETTERS = DOCS.parent / "netdoctor" / "explain" / "data" / "letters.json"
VERDICT, EXPECT = DOCS / "verdict.md", DOCS / "expect.md"
LINT_GENERATED = "<!-- Generated from netdoctor/lint/rules/ by `make docs`. Edit the docstring. -->"
# Around what is generated in a page that is written by hand: its word is families or keys.
BEGIN = "<!-- {}: generated from the checks by `make docs` -->\n"
END = "<!-- {}: end -->\n"
GENERATED = "<!-- Generated from checks/ by `make docs`. Edit the docstring. -->"
KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}
LANGUAGES = {Kind.SHELL: "sh", Kind.SBATCH: "sh", Kind.DOCKERFILE: "dockerfile"}
LANGUAGES |= dict.fromkeys((Kind.HOSTFILE, Kind.ENV, Kind.DEEPSPEED_ENV), "")

PROFILES = {
    Profile.QUICK: "quick, launch, full",
    Profile.LAUNCH: "launch, full",
    Profile.FULL: "full",
    Profile.ON_REQUEST: "none: where `--also` or `--only` names it",
}
COSTS = {
    "read-only": "read-only",
    "opens-port": "opens ports on the nodes for the length of the scan",
    "writes-file": "writes a small hidden file into the folders that were named, and removes it",
    "loads-gpu": "loads the GPUs for seconds",
}


def pages(checks: Iterable[Check]) -> dict[str, str]:
    """Text of every file of docs/checks/ by file name."""
    known = sorted(checks, key=lambda check: check.id)
    return {"index.md": index(known)} | {f"{check.id}.md": page(check) for check in known}


def index(checks: list[Check]) -> str:
    """A table for each family of checks."""
    parts = [GENERATED, "# Checks", "`netdoctor checks explain ID` prints the same pages offline."]
    for family, members in groupby(checks, key=lambda check: check.family):
        rows = ["| check | true on a healthy cluster | from profile | cost |", "|---|---|---|---|"]
        rows += [
            f"| [{check.id}]({check.id}.md) | {markdown(check.title)} | {check.profile} | {check.cost} |"
            for check in members
        ]
        parts += [f"## {family}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def page(check: Check) -> str:
    """The manual page of one check."""
    rows = [f"| {name} | {value} |" for name, value in properties(check)]
    table = "\n".join(["| | |", "|---|---|", *rows])
    return "\n\n".join([GENERATED, f"# {check.id}", *body(check.manual), table]) + "\n"


def body(manual: str) -> Iterator[str]:
    """Paragraphs of a docstring as Markdown; ``Looks at:`` with an indented text becomes a heading.

    What is indented deeper than its section stays so, and is code in Markdown.
    """
    for block in re.split(r"\n{2,}", manual.strip()):
        head, _, rest = block.partition("\n")
        section = bool(re.fullmatch(r"[A-Z][\w ]*:", head)) and rest.startswith(" ")
        if section:
            yield f"## {head[:-1]}"
        yield markdown(re.sub(r"^ {4}", "", rest if section else block, flags=re.MULTILINE))


def markdown(text: str) -> str:
    """Code between double backticks, as docstrings have it, between single ones."""
    return text.replace("``", "`")


def properties(check: Check) -> Iterator[tuple[str, str]]:
    """What a reader wants to know beside the manual."""
    yield "judged", "once per node" if check.scope == "node" else "over all nodes at once"
    yield "runs in profile", PROFILES[check.profile]
    yield "cost", COSTS.get(check.cost, check.cost)
    yield "root on the nodes", "needed" if check.root else "not needed"
    yield "when it cannot be measured", "the verdict is UNDECIDED" if check.required else "the verdict stands"
    if check.after:
        yield "runs after", ", ".join(f"[{name}]({name}.md)" for name in check.after)
    if check.explains:
        yield "a failure explains", ", ".join(f"`{name}`" for name in check.explains)
    facts = [
        f"`{p.info.group}`{' of all nodes' if p.all_nodes else ''}{' if there' if p.optional else ''}"
        for p in check.needs
        if p.info.group != "wanted"
    ]
    yield "facts", ", ".join(facts) or "none"
    if check.expects:
        yield "may be expected", ", ".join(f"`{key}`" for key in check.expects)
    if check.source:
        yield "source", f"<{check.source}>" if check.source.startswith("http") else check.source


def lint_pages(known: Iterable[Rule]) -> dict[str, str]:
    """Text of every file of docs/lint/ by file name."""
    every = sorted(known, key=lambda rule: rule.id)
    parts = [
        LINT_GENERATED,
        "# Rules of lint",
        "`netdoctor lint --explain RULE` prints the same pages offline.",
    ]
    for family, members in groupby(every, key=lambda rule: rule.id.partition(".")[0]):
        rows = ["| rule | what is right | severity |", "|---|---|---|"]
        rows += [f"| [{rule.id}]({rule.id}.md) | {rule.title} | {rule.severity} |" for rule in members]
        parts += [f"## {family}", "\n".join(rows)]
    index = "\n\n".join(parts) + "\n"
    return {"index.md": index} | {f"{rule.id}.md": lint_page(rule) for rule in every}


def lint_page(rule: Rule) -> str:
    """The manual page of one rule."""
    language = LANGUAGES.get(rule.example, "yaml")
    parts = [LINT_GENERATED, f"# {rule.id}", rule.title]
    parts += ["## What happens", rule.happens, "## Write instead", rule.instead]
    for name, text in (("Wrong", rule.wrong), ("Right", rule.right)):
        parts.append(f"## {name}\n\n```{language}\n{text}```")
    rows = [
        f"| {name} | {value} |" for name, value in (("severity", rule.severity), ("read as", rule.example))
    ]
    if rule.source:
        rows.append(f"| source | {f'<{rule.source}>' if rule.source.startswith('http') else rule.source} |")
    return "\n\n".join([*parts, "\n".join(["| | |", "|---|---|", *rows])]) + "\n"


def families(checks: Iterable[Check]) -> str:
    """A row for each family: what --require takes, what "not seen" calls it, its checks by profile."""
    members: dict[str, list[Check]] = {}
    for check in sorted(checks, key=lambda check: check.id):
        members.setdefault(check.family, []).append(check)
    rows = [
        "| `--require` | not tested: | quick | launch adds | full adds | to be asked for |",
        "|---|---|---|---|---|---|",
    ]
    for family in sorted(members, key=sort_key):
        cells = [
            ", ".join(_named(check) for check in members[family] if check.profile is profile)
            for profile in Profile
        ]
        rows.append(f"| `{family}` | {SUBJECTS[family]} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _named(check: Check) -> str:
    link = f"[{check.id.partition('.')[2]}](checks/{check.id}.md)"
    return link if check.required else f"({link})"


def keys(checks: Iterable[Check]) -> str:
    """A row for each check with what may be expected there."""
    rows = ["| check | keys |", "|---|---|"]
    for check in sorted(checks, key=lambda check: check.id):
        if check.expects:
            named = (f"`{key}` ({KINDS[kind]})" for key, kind in check.expects.items())
            rows.append(f"| [{check.id}](checks/{check.id}.md) | {', '.join(named)} |")
    return "\n".join(rows) + "\n"


def verdict(checks: Iterable[Check], text: str) -> str:
    """docs/verdict.md, which is `text` so far, with the table as the checks are now."""
    return _around(text, "families", families(checks))


def expected(checks: Iterable[Check], text: str) -> str:
    """docs/expect.md, likewise."""
    return _around(text, "keys", keys(checks))


def written(checks: Iterable[Check]) -> dict[Path, str]:
    """Pages of docs/ with tables in them: some written by hand around them, some nothing but tables."""
    return {
        VERDICT: verdict(checks, VERDICT.read_text("utf-8")),
        EXPECT: expected(checks, EXPECT.read_text("utf-8")),
        DOCS / "options.md": gen_tables.options_page(),
        DOCS / "facts.md": gen_tables.facts_page(),
        LETTERS: letters(),
    }


def letters() -> str:
    """What each expression of the knowledge cannot match without, a line each."""
    parts = [one.regex for pattern in load().patterns for one in pattern.alternatives]
    regexes = {key_of(regex): required(regex) for regex in parts}
    rows = (
        f'"{key}": {json.dumps([sorted(texts) for texts in sets])}' for key, sets in sorted(regexes.items())
    )
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _around(text: str, word: str, table: str) -> str:
    begin, end = BEGIN.format(word), END.format(word)
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{table}{end}{rest.partition(end)[2]}"


def stale(wanted: dict[str, str], folder: Path = CHECKS) -> list[str]:
    """Names of the files in `folder` that are missing, left over, or differ from `wanted`."""
    found = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a page is stale")
    options = parser.parse_args()
    checks = load_builtin().values()
    wanted = pages(checks)
    different = stale(wanted)
    wanted_lint = lint_pages(rules().values())
    different_lint = stale(wanted_lint, LINT)
    tables = written(checks)
    found = {path: path.read_text("utf-8") if path.exists() else "" for path in tables}
    if options.check:
        for path, text in tables.items():
            if text != found[path]:
                print(f"{path.relative_to(DOCS.parent)} is stale: run `make docs`", file=sys.stderr)
        for name in different:
            print(f"docs/checks/{name} is stale: run `make docs`", file=sys.stderr)
        for name in different_lint:
            print(f"docs/lint/{name} is stale: run `make docs`", file=sys.stderr)
        return 1 if different or different_lint or tables != found else 0
    for path, text in tables.items():
        path.write_text(text, "utf-8")
    for folder, pages_, changed in ((CHECKS, wanted, different), (LINT, wanted_lint, different_lint)):
        folder.mkdir(parents=True, exist_ok=True)
        for name in changed:
            if name in pages_:
                (folder / name).write_text(pages_[name], "utf-8")
            else:
                (folder / name).unlink()
        print(f"docs/{folder.name}/: {len(pages_)} pages, {len(changed)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
