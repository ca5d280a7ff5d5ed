"""What users read has no private words: reports, help, catalogue of checks, TUI, HTML and pages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What is wrong, as a regular expression of whole words, and what to write instead.
PHRASES = {
    r"held (against|to)(?! be)": "compared with; limited to",
    r"held (back|up)": "slowed down by; blocked by",
    r"hold(s|ing)? (up|against)": "blocks; compares with",
    r"hangs? on(?! the)": "is connected to",
    r"heal(s|ed|ing)?": "fix, fixes, fixed; repair for a lab",
    r"cause (is|that is) gone": "is fixed",
    r"waits? for(:| \[| an accepted)": "runs after; blocked by",
    r"not (seen|examined|looked at)": "not tested; not visible",
    r"found in order|not in order|set right|put right": "usable; not usable; fixed",
    r"(good|bad) (node|host|one)s?": "usable, not usable",
    r"takes? (it|them|that|this|all of it|a fix) back|taken back|takes back": "undoes it, reverts it; undo",
    r"(is|are|was|were|be) told(?! (not )?(to|apart))": "is reported, is printed; knows",
    r"tell(s|ing)? of|told of|(speak|speaks|spoke) of": "reports, names, is about, covers",
    r"cannot be told|can be told": "is not known, cannot be determined",
    r"(is|are) said": "is printed, is reported",
    r"says nothing of": "does not show",
    r"once more": "again",
    r"the own": "its own, the node's own",
    r"(is|are) none of (its|the|his|their|our)": "is not one of",
    r"to be had": "is available",
    r"(job|allocation|step|venv) around": "the job that this runs in",
    r"(one|a) (node|task|process|line|host|rank|port) a (node|task|line|host|GPU|row)": "one ... per ...",
    r"pretended": "simulated",
    r"see to": "resolve, take care of",
    r"for its head|for the head of": "sends an HTTP HEAD request",
    r"nobody can tell": "is not known",
    r"mend(s|ed|ing)?": "repair, fix, correct",
    r"hand(s|ed) on|hands? out": "pass on, offer, assign",
    r"anew": "again",
    r"without a word": "silently, without any message",
}
BANNED = [(re.compile(rf"\b(?:{phrase})(?!\w)", re.IGNORECASE), use) for phrase, use in PHRASES.items()]
# Where such a word is right: the start of the file's path, and the text.
ALLOWED = {
    ("", "lab heal"),  # a command
    ("", "hosts good"),
}
# Keys of tables whose values are patterns, and lines of other programs.
FOREIGN = re.compile(r"\s*(#|\[|(regex|line|words|source|id|example_of|see|fixes)\s*=)")
CODE = re.compile(r"`[^`\n]*`|https?://\S+")

Texts = Iterator[tuple[int, str]]


def pieces(node: ast.AST) -> Texts:
    """Literals below a node, with their line. Docstrings are for those who read the code."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in child.values)
            yield child.lineno, "".join(map(str, parts))
            for part in child.values:
                yield from pieces(part)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.lineno, child.value
        else:
            yield from pieces(child)


def lines(path: Path) -> Texts:
    """A page or a table: each line with the next word, so that a phrase may be wrapped."""
    every = path.read_text("utf-8").splitlines()
    if path.suffix == ".toml":
        every = ["" if FOREIGN.match(line) else line for line in every]
    for number, (line, after) in enumerate(zip(every, [*every[1:], ""], strict=True), 1):
        yield number, f"{line} {' '.join(after.split()[:1])}"


def texts(path: Path) -> Texts:
    found = pieces(ast.parse(path.read_text("utf-8"))) if path.suffix == ".py" else lines(path)
    for number, text in found:
        yield number, CODE.sub("`…`", text)


def files() -> list[Path]:
    found = [path for top in ("netdoctor", "checks", "tui") for path in (ROOT / top).rglob("*.py")]
    found += [path for top in ("netdoctor", "checks") for path in (ROOT / top).rglob("*.toml")]
    found += [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    linked = (ROOT / "netdoctor" / "checks", ROOT / "netdoctor" / "tui")
    return sorted(path for path in found if not any(link in path.parents for link in linked))


def hits(path: Path) -> Iterator[str]:
    name = path.relative_to(ROOT).as_posix()
    for number, text in texts(path):
        inside = text
        for start, word in ALLOWED:
            inside = inside.replace(word, "…") if name.startswith(start) else inside
        if " " in inside:
            for phrase, use in BANNED:
                for found in phrase.finditer(inside):
                    yield f"{name}:{number}: {found[0]!r}: write {use!r}"


@pytest.mark.parametrize("top", ["netdoctor", "checks", "docs", "tui", ""])
def test_texts_for_users_have_no_private_words(top: str) -> None:
    inside = [path for path in files() if path.relative_to(ROOT).parts[:-1][:1] == ((top,) if top else ())]
    assert inside
    assert not (found := [hit for path in inside for hit in hits(path)]), "\n".join(["", *found])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param('f(f"a node that {how} heals {x}")', ["heals"], id="part of an f-string"),
        pytest.param('HELP = "rates are held " "against"', ["held against"], id="joined literals"),
        pytest.param('KEY = "healed"', [], id="a key of JSON"),
        pytest.param('"""What heals a node."""', [], id="docstring"),
        pytest.param('say("run `netdoctor lab heal`, then heal it")', ["heal"], id="code in backticks"),
        pytest.param('say("NCCL is told to use eth0; the two are told apart")', [], id="plain English"),
    ],
)
def test_only_sentences_are_read(
    text: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "x.py").write_text(text, "utf-8")
    assert [hit.split("'")[1] for hit in hits(tmp_path / "x.py")] == found
