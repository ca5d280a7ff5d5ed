"""A hostile report: saved reports, changed in structure or bytes, before every command that reads one.

Whatever a file says: it is shown or refused, with an exit code of the contract. Nothing runs by it, nothing
is written but what was asked for, no text of it steers a terminal, a CI or a reader of markup, what is
written can be read again, and no command of a stranger's report passes for one of ours.
"""

import contextlib
import copy
import dataclasses
import functools
import io
import itertools
import json
import os
import random
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree as ET

from netdoctor import cli
from netdoctor.check import Profile
from netdoctor.errors import InputError
from netdoctor.facts.base import Why
from netdoctor.facts.host import Login
from netdoctor.report import commands
from netdoctor.report.foreign import MARK
from netdoctor.report.formats.json_ import loads, to_dict
from netdoctor.report.model import Report
from netdoctor.report.output import FORMATS
from netdoctor.report.save import load
from netdoctor.runner import ScanRunner
from netdoctor.scanning import judge_saved
from netdoctor.store import dump
from netdoctor.text import has_ci_command
from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.state import opened
from tests.checks.test_unread import healthy
from tests.core.fake import FakeTransport
from tests.fuzz import drawn
from tests.hostile import HOSTILE
from tests.report import strict
from tests.report.build import sample_report
from tests.report.test_html import Reader
from tests.tui.harness import drive, rich_report

ROOT = Path(__file__).resolve().parents[2]
STRANGER = 12345

# Control characters but the newline, bidirectional controls, line separators.
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
OUR_COLOURS = re.compile(r"\x1b\[(?:0|2|1|3[1235];1)m")

# Behind each of these a shell would run PWN, or ssh take it for an option.
SHELL = (
    "$(PWN)", "`PWN`", "n1;PWN;", "n1|PWN", "n1&&PWN", "n1\nPWN\n", "n1>PWN", "'PWN'", "';PWN;'", '";PWN;"',
    '"$(PWN)"', "-oPWN=x", "fe80::1%$(PWN)", "fe80::1%'$(PWN)'", "[n1]:22;PWN", "/tmp/$(PWN)", "/tmp/';PWN;'",
    "eth0;PWN", "a@-oPWN=x", "-oPWN@n1", "10.0.0.1;PWN", "n1'\\'';PWN;'", "${IFS}$(PWN)",
)  # fmt: skip
RUNS = re.compile(r"(?:\$\(|`|;|\||&|\n|>|<)\s*PWN")
TEXTS = (*HOSTILE.values(), *SHELL)
NUMBERS = (
    0, 1, -1, 255, 65536, 2**31, 2**53, -(2**53), 2**53 + 1, 2**63 - 1, 10**30, 0.5, -0.0, 1e308, 5e-324,
    float("nan"), float("inf"), True, False,
)  # fmt: skip
WORDS = (
    *("pass", "warn", "fail", "blocked", "skip", "unknown", "ready", "never", "control", "cluster", "job"),
    *Login, *Why, *Profile, "n1->n2", "n1", "", "::1", "10.0.0.1", "eth0", "mlx5_0", "up", "down", "1",
    "2.6.0+cu124", "open", "filtered",
)  # fmt: skip
# What takes the place of one of these is mostly another one: anything else would be no fact at all.
ENUMS: tuple[tuple[str, ...], ...] = (
    tuple(Login), tuple(Why), tuple(Profile), ("pass", "warn", "fail", "blocked", "skip", "unknown"),
    ("open", "filtered", "refused", "no_route", "in_use"), ("up", "down", "unknown"),
)  # fmt: skip


# Reports to change


@functools.cache
def corpus() -> tuple[dict[str, Any], ...]:
    """Saved reports as plain data: with all facts and a way to be asked for again, drawn, recorded."""
    options = {
        "profile": "launch", "ssh_config": "/dev/null", "ssh_user": "ml", "ssh_port": 2222, "only": ["net.*"],
        "skip": [], "parallel": 8, "timeout": 5.0, "python": "/usr/bin/python3", "jump": "me@gate:22",
        "strict": False,
    }  # fmt: skip
    targets = [{"id": f"n{i}", "host": f"n{i}", "order": i - 1} for i in (1, 2, 3)]
    shut_out = healthy()
    for node, outcome in (("n1", Login.AUTH), ("n2", Login.HOST_KEY_CHANGED), ("n3", Login.JUMP)):
        session = shut_out.get("session", node)
        shut_out.put("session", node, dataclasses.replace(session, outcome=outcome, via="me@gate", user="ml"))
    shown = [sample_report("not_ready"), sample_report("undecided"), rich_report()]
    whole = []
    for store in (healthy(), healthy(), shut_out):
        bare = sample_report("ready", nodes=3)
        run = dataclasses.replace(bare.run, profile="launch", replay={"targets": targets, "options": options})
        whole.append(judge_saved(dataclasses.replace(bare, run=run, facts=dump(store)), {}, Path("r.json")))
    recorded = json.loads((ROOT / "docs/demo-report.json").read_bytes())
    return (*(to_dict(one) for one in (*whole, *shown)), recorded)


def value_like(rng: random.Random, data: Any, was: Any) -> Any:
    """Another value of the same type: what does not fit is refused at once, and tests little."""
    if isinstance(was, bool):
        return not was
    if isinstance(was, str):
        alike = next((words for words in ENUMS if was in words), ())
        if alike and rng.random() < 0.8:
            return rng.choice(alike)
        kind = rng.randrange(8)
        if kind == 0:
            place, key = somewhere(rng, data, 0.0)
            return place[key] if isinstance(place[key], str) else was
        words = (WORDS, TEXTS, TEXTS, SHELL)[min(kind, 4) - 1]
        return (was if kind == 7 else "") + rng.choice(words)
    if isinstance(was, int):
        return rng.choice([0, 1, -1, 22, 255, 65536, 2**31, 2**53, -(2**53), was + 1, was * 1000 % 2**53])
    if isinstance(was, float):
        return rng.choice([0.0, -0.0, -1.0, 1e308, 5e-324, was * 1e9, was * 1e-9])
    return rng.choice([None, None, rng.choice(SHELL)])


def value_unlike(rng: random.Random, data: Any) -> Any:
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(TEXTS)
    if kind == 1:
        return rng.choice(NUMBERS)
    if kind == 2:  # from elsewhere in the report
        place, key = somewhere(rng, data)
        return copy.deepcopy(place[key])
    if kind == 3:
        return rng.choice([None, [], {}, "", [None], {"": None}])
    if kind == 4:
        return json.loads("[" * (depth := rng.choice([3, 50, 70, 200])) + "]" * depth)
    return [rng.choice(TEXTS)] * rng.choice([2, 300])


def somewhere(rng: random.Random, data: Any, stop: float = 0.15) -> tuple[Any, Any]:
    """(container, key) of a random place; every level as likely. stop: the chance to stay at a container."""
    place, key = data, rng.choice(list(data)) if isinstance(data, dict) else rng.randrange(len(data))
    while rng.random() >= stop:
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        place = inner
        key = rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
    return place, key


def change_value(rng: random.Random, data: dict[str, Any], part: Any) -> None:
    """Change one value of a part of a report, so that it is still a report."""
    place, key = somewhere(rng, part, 0.0)
    if isinstance(place[key], dict | list) or (key == "schema" and rng.random() < 0.99):
        return  # an empty one, or what would be refused before all else
    place[key] = value_like(rng, data, place[key])


def change_object(rng: random.Random, data: dict[str, Any], part: Any) -> None:
    """Change many values of one object, such as a fact of a node: some only matter beside others."""
    place, key = somewhere(rng, part, 0.25)
    todo = [place[key]]
    while todo:
        inner = todo.pop()
        if isinstance(inner, dict | list):
            for name, value in [*(inner.items() if isinstance(inner, dict) else enumerate(inner))]:
                if isinstance(value, dict | list):
                    todo.append(value)
                elif rng.random() < 0.4:
                    inner[name] = value_like(rng, data, value)


def change_structure(rng: random.Random, data: dict[str, Any], part: Any) -> None:
    """Change one place of a report, whatever becomes of it."""
    place, key = somewhere(rng, part)
    move = rng.randrange(6)
    if move < 3:
        place[key] = value_unlike(rng, data)
    elif move == 3:
        del place[key]
    elif isinstance(place, dict):
        place[rng.choice(TEXTS)] = place[key] if move == 4 else value_unlike(rng, data)
    elif move == 4:
        place.extend([place[key]] * rng.choice([1, 5, max(1, 500_000 // len(json.dumps(place[key])) % 500)]))
    else:
        rng.shuffle(place)


def hostile_bytes(rng: random.Random, data: bytes) -> bytes:
    """Change the bytes of a file in one place."""
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    match rng.randrange(6):
        case 0:
            return data[:a]
        case 1:
            return data[:a] + rng.randbytes(rng.choice([1, 4, 64])) + data[a:]
        case 2:
            return data[:a] + data[b:]
        case 3:
            return data[:b] + data[a:]
        case 4:
            return (
                data[:a]
                + rng.choice([b"\xff\xfe", b"\0", b"[" * 2000, b"\xed\xa0\x80", b"9" * 5000])
                + data[a:]
            )
        case _:
            return b"\xef\xbb\xbf" + data


STRICT = (("run", "replay"), ("measures",))


def has_part(data: Any, about: tuple[str, ...]) -> bool:
    return not about or (bool(data[about[0]]) and has_part(data[about[0]], about[1:]))


def part_of(data: Any, about: tuple[str, ...]) -> Any:
    """The part of a report under these names, as far as changes have left it."""
    for name in about:
        inner = data.get(name) if isinstance(data, dict) else None
        if not isinstance(inner, dict | list) or not inner:
            return data
        data = inner
    return data


def hostile_report(rng: random.Random, about: tuple[str, ...]) -> bytes:
    """The bytes of a report. about: where most changes are made, such as ``("run", "replay")``."""
    fits = [one for one in corpus() if has_part(one, about)]
    if about[-1:] == ("session",):
        fits = [one for one in fits if one["facts"]["node"]["session"]["n1"]["value"]["outcome"] != Login.OK]
    data = copy.deepcopy(rng.choice(fits))
    change = rng.choice([change_value, change_object, change_object, change_object, change_structure])
    # Of what is held to strict rules, many changes would always be refused.
    for _ in range(rng.choice([1, 1, 2] if about in STRICT else [1, 2, 4, 8, 30, 100])):
        part = part_of(data, about if rng.random() < 0.7 else ())
        if part:
            change(rng, data, part)
    encoded = json.dumps(data, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return hostile_bytes(rng, encoded) if rng.random() < 0.1 else encoded


# What must not happen


class _Watch:
    """Notes what runs a program, reaches out, or opens a file to write outside the folder of the case."""

    EVENTS = (
        "subprocess.Popen", "os.exec", "os.system", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn",
        "socket.connect", "socket.getaddrinfo", "socket.bind", "webbrowser.open", "pickle.find_class",
    )  # fmt: skip

    def __init__(self) -> None:
        self.folder = ""
        self.seen: list[str] = []
        sys.addaudithook(self.hook)  # for as long as the process lives; silent between the cases

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.folder:
            return
        if event in self.EVENTS:
            self.seen.append(f"{event} {args!r:.200}")
        elif event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR) and isinstance(args[0], str):
            path = args[0]
            if os.path.isabs(path) and not path.startswith((self.folder, "/dev/null", tempfile.gettempdir())):
                self.seen.append(f"open {path!r}")

    @contextlib.contextmanager
    def over(self, folder: Path) -> Iterator[None]:
        self.folder, self.seen = str(folder), []
        # Python writes the bytecode of a module that a command imports first; a report has no part in that.
        keeps, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            yield
        finally:
            self.folder = ""
            sys.dont_write_bytecode = keeps
        assert not self.seen, f"done by a report: {self.seen[:5]}"


@functools.cache
def watch() -> _Watch:
    return _Watch()


def interpreted(shell: str) -> str:
    """A line as its shell looks at it: single quotes are a word, and double ones keep `$(` and backticks."""
    kept, quote, escaped = [], "", False
    for char in shell:
        if escaped:
            kept.append("_")
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char == quote:
            quote = ""
        elif char in "'\"" and not quote:
            quote = char
        elif quote == "'" or (quote and char in ";|&<>\n"):
            kept.append("_")
        else:
            kept.append(char)
    return "".join(kept)


def assert_harmless(shell: str) -> None:
    """A line that netdoctor made of hostile facts runs nothing of them, and gives ssh no option."""
    shell = shell.removeprefix(MARK)  # somebody may take the mark away
    if shell.startswith("#"):
        return
    assert not RUNS.search(interpreted(shell)), f"would run PWN: {shell!a}"
    said = shlex.split(shell, comments=True)
    for before, word in zip(["", *said], said, strict=False):
        assert not (word.startswith("-oPWN") and before != "--"), f"an option: {shell!a}"


def assert_inert(text: str) -> None:
    found = STEERS.search(text)
    assert found is None, f"{found[0]!a} in {text[max(found.start() - 60, 0) :][:120]!a}"


def all_commands(report: Report) -> list[str]:
    """Every line of a report that is printed to be pasted."""
    found = [
        line for c in report.causes for fix in c.fixes for line in commands.fix_commands(fix, every=True)
    ]
    return found + [cause.verify.shell for cause in report.causes if cause.verify]


def assert_marked(report: Report) -> None:
    """Nothing of a stranger's report passes for ours."""
    assert report.run.foreign
    assert not report.run.replay
    for shell in all_commands(report):
        assert shell.startswith(("# do not run", MARK)), shell
    assert all(cause.verify is None or not cause.verify.argv for cause in report.causes)


def no_command_in_the_log(text: str) -> None:
    for line in text.splitlines():
        assert not line.lstrip().startswith("::"), line
        assert not has_ci_command(line), line


def junit(text: str) -> None:
    allowed = (
        "testsuites",
        "testsuite",
        "testcase",
        "failure",
        "error",
        "skipped",
        "system-out",
        "properties",
        "property",
    )
    assert {element.tag for element in ET.fromstring(text).iter()} <= set(allowed)


def markdown(text: str) -> None:
    from markdown_it import MarkdownIt

    drawn = MarkdownIt("gfm-like", {"html": True}).enable(["strikethrough", "table"]).render(text)
    # Where to read more is a link: an https address that is shown as it is.
    drawn = re.sub(r'<a href="(https://[\w.~/#?=&;%+,:-]+)">\1</a>', "", drawn)
    allowed = "h2|h3|p|ul|li|pre|code|table|thead|tbody|tr|th|td|br"
    assert re.sub(rf'</?(?:{allowed})(?: (?:class|style)="[a-z:-]*")?>', "", drawn).count("<") == 0


def prom(text: str) -> None:
    label = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
    sample = re.compile(rf"[a-z_][a-z0-9_]*(\{{{label}(?:,{label})*\}})? -?[0-9.]+(?:e[+-]?[0-9]+)?")
    for line in text.splitlines():
        assert line.startswith("# ") or sample.fullmatch(line), line


def github(text: str) -> None:
    ours = re.compile(r"::(?:group::netdoctor report$|endgroup::$|(?:error|warning) (?:file=|title=))")
    for line in text.splitlines():
        assert not line.lstrip().startswith("::") or ours.match(line), line
        assert not has_ci_command(line), line


def jsonl(text: str) -> None:
    lines = [json.loads(line) for line in text.splitlines()]
    assert (lines[0]["event"], lines[-1]["event"]) == ("start", "end")


def hosts(text: str) -> None:
    # What a hosts file may say of a node, each of its kind; nothing of it steers who reads it.
    line = re.compile(r"[\w.@:\[\]-]+(?: (?:port|slots|gpus)=\d+| (?:user|python|leaf)=[\w./~@+-]+)*")
    for one in text.splitlines():
        assert one.startswith("#") or line.fullmatch(one), one


def drains(text: str) -> None:
    # Of whatever a report says only node names, keys and one quoted sentence are left.
    name = r"[A-Za-z0-9][\w.:-]*"
    reason = r"""Reason='[^'"\\]*'"""
    slurm = rf"scontrol update NodeName={name} State=DRAIN {reason}"
    cordon = rf"kubectl cordon {name} && kubectl label node {name} --overwrite netdoctor/[a-z-]+=[\w.-]+"
    for one in text.splitlines():
        assert one.startswith("# ") or re.fullmatch(rf"{slurm}|{cordon}", one), one


def npd(text: str) -> None:
    assert text.isascii()
    assert len(text) <= 80
    assert text.endswith("\n")
    assert text.count("\n") == 1


LOOKS: dict[str, Callable[[str], object]] = {
    "text": no_command_in_the_log, "short": no_command_in_the_log, "markdown": markdown, "junit": junit,
    "prom": prom, "github": github, "json": lambda text: loads(text.encode()), "jsonl": jsonl,
    "html": Reader, "sarif": lambda text: strict.sarif(text.encode()), "nagios": strict.nagios,
    "hosts": hosts, "slurm": drains, "kubectl": drains, "npd": npd, "none": lambda text: None,
}  # fmt: skip


# The commands


def netdoctor(*argv: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(argv)
    texts = []
    for stream in (out, err):
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        texts.append(stream.buffer.getvalue().decode())
    trace = re.search(r"traceback: (\S+); the cluster", texts[1])
    if trace:
        place = Path(trace[1])
        texts[1] += place.read_text()
        place.unlink()
    assert code != 5, texts[1]
    assert "Traceback" not in texts[1], texts[1]
    return code, texts[0], texts[1]


def as_bad_input(code: int, err: str, known: tuple[int, ...]) -> bool:
    """Whether a command refused its input, as it is told."""
    assert_inert(err)
    assert code in (*known, 2), (code, err)
    assert (code == 2) <= err.startswith("netdoctor"), err
    return code == 2


def show(rng: random.Random, path: Path, foreign: bool) -> None:
    flags = [
        ["-v"],
        ["-vv"],
        ["-q"],
        ["--all"],
        ["--width", str(rng.randrange(40, 140))],
        ["--color", "always"],
    ]
    format_ = rng.choice(list(FORMATS))
    argv = ["-o", format_, *itertools.chain(*rng.sample(flags[2:] if rng.random() < 0.5 else flags[:2], 1))]
    argv += rng.choice([[], ["--json-detail", "all"], ["--pretty"]]) if format_.startswith("json") else []
    code, out, err = netdoctor("report", "show", str(path), *argv)
    if as_bad_input(code, err, (0,)):
        assert out == ""
        return
    out = OUR_COLOURS.sub("", out) if format_ == "text" and "always" in argv else out
    assert_inert(out)
    LOOKS[format_](out)
    if foreign:
        assert_marked(load(path))


def convert(rng: random.Random, path: Path, foreign: bool) -> None:
    code, out, err = netdoctor(
        "report",
        "convert",
        str(path),
        *itertools.chain(*(("-o", f"{f}=out.{f}") for f in FORMATS if f != "none")),
    )
    assert out == ""
    if as_bad_input(code, err, (0,)):
        return
    for format_ in FORMATS:
        if format_ != "none":
            text = Path(f"out.{format_}").read_bytes().decode()
            assert_inert(text)
            LOOKS[format_](text)
    if foreign:
        assert_marked(load(Path("out.json")))


def facts(rng: random.Random, path: Path, foreign: bool) -> None:
    more = rng.choice(
        [[], ["-v"], ["--only", "net.*"], ["--profile", "full"], ["--strict"], ["--node", "n1"]]
    )
    code, out, err = netdoctor("scan", "--facts", str(path), "--save", "out.json", *more)
    if as_bad_input(code, err, (0, 1, 3, 4)):
        return
    assert_inert(out)
    no_command_in_the_log(out)
    again = load(Path("out.json"))  # what is written can be read
    assert again.verdict.exit_code == code
    for shell in all_commands(again):
        assert_harmless(shell)
    for record in (c for cause in again.causes for fix in cause.fixes for c in fix.commands):
        assert_harmless(record.inner)
    if foreign:
        assert_marked(again)


def last(rng: random.Random, path: Path, foreign: bool) -> None:
    """Asked for again: a plan, for which the real transport reads its settings, or a scan of our nodes."""
    plan = rng.random() < 0.5
    with contextlib.nullcontext() if plan else fake_nodes():
        argv = ["--plan"] if plan else ["-p", "quick"]
        code, out, err = netdoctor("scan", "--last", "--save", str(path), *argv)
    if as_bad_input(code, err, (0,) if plan else (0, 1, 3, 4)):
        return
    assert not foreign
    assert_inert(out)
    if not plan:
        load(path)


def compare(rng: random.Random, path: Path, foreign: bool) -> None:
    """Held against a sound one, as the earlier or the later of the two."""
    Path("sound.json").write_text(json.dumps(corpus()[0]), "utf-8")
    pair = rng.sample([str(path), "sound.json"], 2)
    format_ = rng.choice(["text", "json"])
    code, out, err = netdoctor("diff", *pair, "-o", format_, "--width", str(rng.randrange(40, 140)))
    if as_bad_input(code, err, (0, 1)):
        assert out == ""
        return
    assert_inert(out)
    if format_ == "json":
        json.loads(out)
    else:
        no_command_in_the_log(out)


def good(rng: random.Random, path: Path, foreign: bool) -> None:
    """The nodes that it found in order, as one name on a line each."""
    code, out, err = netdoctor("hosts", "good", str(path), "--yes-exclude")
    if not as_bad_input(code, err, (0, 1, 3)):
        hosts(out)


def baseline(rng: random.Random, path: Path, foreign: bool) -> None:
    with fake_nodes():
        code, out, err = netdoctor("scan", "n1", "n2", "--baseline", str(path), "--no-save", "-p", "quick")
    if not as_bad_input(code, err, (0, 1, 3)):
        assert_inert(out)


@contextlib.contextmanager
def fake_nodes() -> Iterator[None]:
    with mock.patch("netdoctor.scanning.plan.make_transport", side_effect=lambda request: FakeTransport()):
        yield


KEYS = (
    *(
        "1",
        "enter",
        "y",
        "v",
        "E",
        "escape",
        "2",
        "enter",
        "z",
        "3",
        "tab",
        "v",
        "4",
        "6",
        "r",
        "escape",
        "R",
        "escape",
    ),
    *("s", "escape", "n", "question_mark", "escape", "down", "e", "Y", "ctrl+s"),
)


def tui(rng: random.Random, path: Path, foreign: bool) -> None:
    """The screens, without a terminal, under keys of which some would run, write or copy."""
    try:
        report = load(path)
    except InputError as error:
        assert_inert(str(error))
        return
    runner = ScanRunner(None, {"environ": {}, "save": path}, path)
    runner.adopt(report)
    app = NetdoctorApp(opened(report), runner=runner, path=path, now=lambda: 1.8e9)
    size = rng.choice([(60, 20), (100, 30), (160, 50)])
    with mock.patch.object(runner, "begin") as begin:
        for line in drive(app, size, *rng.choices(KEYS, k=8)):
            assert_inert(line)
    if app.crash is not None:
        raise app.crash
    if foreign:
        assert not begin.called
        assert runner.cannot
        assert not list(Path().glob("netdoctor-fixes*"))


# What reads reports: how often it has its turn, and what of a report it looks at most.
CONSUMERS: dict[Callable[[random.Random, Path, bool], None], tuple[int, tuple[tuple[str, ...], ...]]] = {
    show: (20, ((),)),
    convert: (10, ((),)),
    facts: (50, (("facts", "node"), ("facts", "node", "session"), ("facts", "cluster"))),
    last: (12, (("run", "replay"),)),
    baseline: (4, (("measures",),)),
    tui: (4, ((),)),
    compare: (8, ((), ("matrix",), ("causes",), ("verdict",))),
    good: (4, ((), ("healthy_nodes",), ("targets",))),
}


def case(rng: random.Random) -> None:
    """One hostile report before one command, in a folder of its own."""
    corpus()  # before anything is watched
    with tempfile.TemporaryDirectory(prefix="netdoctor-fuzz-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ, {"HOME": name}))
        path = Path(rng.choice(["r.json", ".netdoctor/last.json"]))
        path.parent.mkdir(exist_ok=True)
        consumer = rng.choices(list(CONSUMERS), [often for often, _ in CONSUMERS.values()])[0]
        path.write_bytes(hostile_report(rng, rng.choice(CONSUMERS[consumer][1])))
        foreign = rng.random() < 0.5
        if foreign and os.geteuid() == 0:
            os.chown(path, STRANGER, -1)
        elif foreign:
            stack.enter_context(mock.patch("os.geteuid", return_value=STRANGER))
        try:
            with watch().over(folder):
                consumer(rng, path, foreign)
        except BaseException as error:
            error.add_note(f"{consumer.__name__}, {'of a stranger' if foreign else 'own'}: {path}")
            raise


def run(seed: int, seconds: float) -> int:
    """As `drawn`."""
    return drawn("report", case, seed, seconds)
