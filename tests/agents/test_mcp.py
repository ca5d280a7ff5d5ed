"""`netdoctor mcp`, asked by the SDK's own client; every answer is held against its schema."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from netdoctor.cli import build_parser, run
from netdoctor.cli.agents import answers
from netdoctor.cli.agents.tools import RUNS_KEPT, TOOLS, Desk, schema
from netdoctor.engine.registry import load_builtin
from netdoctor.errors import InputError
from netdoctor.model import fail
from netdoctor.report.save import save
from tests.core.fake import hint, saying
from tests.hostile import HOSTILE, each_of, steers_a_terminal
from tests.report.build import sample_report
from tests.report.filling import fill
from tests.scanning.ground import Ground

ROOT = Path(__file__).parents[2]
# What stands outside of `untrusted` in answers that are not of the catalogue: words of lists, ids, names.
WORD = r"[A-Za-z0-9_.:-]{0,64}"
LOG = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
VALIDATORS = {name: jsonschema_rs.validator_for(schema(tool.gives)) for name, tool in TOOLS.items()}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").write_text("n1\nn2\n", "utf-8")
    return Desk(tmp_path.resolve())


def client(desk: Desk, work: Callable[[Any], Awaitable[Any]], mode: str = "auto") -> Any:
    """What `work` gives with a client that is connected to a server in this process."""
    mcp = pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    import anyio

    from netdoctor.cli.agents.server import make

    async def main() -> Any:
        async with mcp.Client(make(desk), mode=mode, raise_exceptions=True) as connected:
            return await work(connected)

    return anyio.run(main)


def ask(desk: Desk, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool, valid against its schema. The text beside it says the same."""

    async def work(connected: Any) -> Any:
        return await connected.call_tool(tool, arguments)

    result = client(desk, work)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    check(tool, result.structured_content)
    return dict(result.structured_content)


def refused(desk: Desk, tool: str, **arguments: Any) -> str:
    async def work(connected: Any) -> Any:
        return await connected.call_tool(tool, arguments)

    result = client(desk, work)
    assert result.is_error
    data = json.loads(result.content[0].text)
    assert data.keys() == {"error", "untrusted"}
    return str(data["untrusted"]["text"])


def check(tool: str, data: Any) -> None:
    VALIDATORS[tool].validate(data)
    assert len(json.dumps(data)) < 4 * answers.BYTES_MAX
    for text in strings(data):
        assert not steers_a_terminal(text), text


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def trusted(value: Any) -> Any:
    """An answer without what is marked as untrusted."""
    if isinstance(value, dict):
        return {key: trusted(one) for key, one in value.items() if key != "untrusted"}
    return [trusted(one) for one in value] if isinstance(value, list) else value


def test_the_sdk_is_an_extra_that_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.stdio", None)
    assert run(["mcp"]) == 2
    assert "pip install 'netdoctor[mcp]'" in capsys.readouterr().err


def test_tools_say_what_they_take_and_give_and_only_read(desk: Desk) -> None:
    async def work(connected: Any) -> Any:
        return (await connected.list_tools()).tools, connected.instructions

    tools, instructions = client(desk, work, mode="legacy")
    assert [tool.name for tool in tools] == list(TOOLS)
    assert "never follow" in instructions
    for tool in tools:
        assert tool.annotations.read_only_hint
        assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert not {"command", "argv", "args", "shell"} & tool.input_schema["properties"].keys()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_scan_and_one_check_of_it_again(desk: Desk, ground: Ground, mode: str) -> None:
    cause = hint("bad-port", "n2", title="{nodes} drops connections")
    ground.checks[1] = saying("net.ports", fail("n2", "filtered", cause=cause))
    steps: list[tuple[float, str]] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, message or ""))

    async def work(connected: Any) -> Any:
        first = await connected.call_tool("scan", {"hosts": "hosts.txt"}, progress_callback=told)
        ground.checks[1] = saying("net.ports")
        again = {"run": first.structured_content["run"], "checks": ["net.ports"], "nodes": ["n2"]}
        return first.structured_content, (await connected.call_tool("rerun", again)).structured_content

    first, second = client(desk, work, mode)
    check("scan", first)
    check("rerun", second)
    assert (first["verdict"], first["saved"], first["nodes"]) == ("not_ready", True, 2)
    [found] = first["causes"]
    assert (found["checks"], found["untrusted"]["key"]) == (["net.ports"], "bad-port")
    assert (second["causes"], second["verdict"]) == ([], "ready")
    assert [number for number, _ in steps] == sorted({number for number, _ in steps}) != []
    assert Path(".netdoctor/last.json").is_file()


def test_a_tree_that_cannot_be_written_costs_the_file_alone(
    desk: Desk, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written but below the report folder, and without that the answer is there all the same."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    monkeypatch.setattr("netdoctor.runner.save", _no_room)
    found = ask(desk, "scan", hosts="hosts.txt")
    assert (found["verdict"], found["saved"]) == ("ready", False)
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


READ_ONLY = """
mount --make-rprivate / && mount --bind .netdoctor .netdoctor && mount -o remount,bind,ro / &&
! touch beside 2>/dev/null && exec "$@"
"""


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone makes a tree read-only")
def test_no_tool_writes_outside_of_the_report_folder(tmp_path: Path) -> None:
    """All tools in a mount namespace in which nothing but .netdoctor can be written."""
    mcp = pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    import anyio

    (tmp_path / ".netdoctor").mkdir()
    (tmp_path / "hosts.txt").write_text("127.0.0.1:1\n", "utf-8")
    (tmp_path / "job.sh").write_text("#!/bin/sh\nexport MASTER_PORT=99999\ntorchrun train.py\n", "utf-8")
    calls: dict[str, dict[str, Any]] = {
        "scan": {"hosts": "hosts.txt", "profile": "quick"}, "rerun": {"checks": ["ssh.login"]},
        "explain_log": {"text": LOG}, "explain_word": {"words": ["NCCL_DEBUG"]}, "checks_list": {},
        "checks_explain": {"id": "net.ports"}, "plan": {"hosts": "hosts.txt"}, "lint": {"files": ["job.sh"]},
        "report": {}, "diff": {"old": ".netdoctor/last.json"},
    }  # fmt: skip
    assert calls.keys() == TOOLS.keys()
    server = mcp.StdioServerParameters(
        command="unshare",
        args=["-m", "sh", "-c", READ_ONLY, "sh", sys.executable, "-m", "netdoctor", "mcp"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    async def main() -> dict[str, Any]:
        async with mcp.Client(server) as connected:
            return {name: await connected.call_tool(name, arguments) for name, arguments in calls.items()}

    for name, result in anyio.run(main).items():
        assert not result.is_error, (name, result.content)
        check(name, result.structured_content)
        if name == "scan":
            assert result.structured_content["causes"][0]["checks"] == ["ssh.login"]
            assert result.structured_content["saved"]
    assert {path.name for path in tmp_path.iterdir()} == {".netdoctor", "hosts.txt", "job.sh"}


def _no_room(*args: object) -> None:
    raise OSError(30, "Read-only file system")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_cancelled_scan_ends(desk: Desk, ground: Ground, mode: str) -> None:
    anyio = pytest.importorskip("anyio", reason="the extra [mcp] is not installed")
    transport, called = ground.transport, threading.Event()

    def hang(what: str, node: str) -> None:
        called.set()
        while transport.trip is hang:
            time.sleep(0.02)
        transport.trip(what, node)

    transport.trip = hang

    async def work(connected: Any) -> bool:
        with anyio.move_on_after(1.0) as scope:
            await connected.call_tool("scan", {"hosts": "hosts.txt"})
        # The next one waits until nothing of the first is left.
        await connected.call_tool("scan", {"hosts": "hosts.txt"})
        return bool(scope.cancelled_caught)

    assert client(desk, work, mode)
    assert called.is_set()
    assert transport.closed >= 1
    assert [thread for thread in threading.enumerate() if thread.name == "scan"] == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/etc/hosts", "outside"),
        ("../hosts.txt", "outside"),
        ("link.txt", "outside"),
        ("none.txt", "no such file"),
        (".", "no such file"),
        ("a\0b", "no name"),
        ("n1,n2", "no such file"),
    ],
)
@pytest.mark.parametrize("tool", ["scan", "plan"])
def test_hosts_come_from_files_of_the_folder_alone(desk: Desk, tool: str, name: str, why: str) -> None:
    Path("link.txt").symlink_to("/etc/hosts")
    assert why in refused(desk, tool, hosts=name)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("explain_log", {"files": ["/etc/hosts"]}),
        ("lint", {"files": ["../../etc/hosts"]}),
        ("report", {"report": "/etc/hosts"}),
        ("diff", {"old": "/etc/hosts", "new": "hosts.txt"}),
    ],
)
def test_files_of_other_folders_are_not_read(desk: Desk, tool: str, arguments: dict[str, Any]) -> None:
    Path("../hosts.txt").touch()
    assert "outside" in refused(desk, tool, **arguments) or "hosts.txt" in refused(desk, tool, **arguments)


def test_a_file_that_was_named_at_the_start_is_read(
    desk: Desk, tmp_path_factory: Any, ground: Ground
) -> None:
    elsewhere = tmp_path_factory.mktemp("etc") / "cluster.txt"
    elsewhere.write_text("n1\nn2\n", "utf-8")
    desk.hosts = frozenset([elsewhere.resolve()])
    assert ask(desk, "scan", hosts=str(elsewhere))["nodes"] == 2
    assert "outside" in refused(desk, "lint", files=[str(elsewhere)])


def test_what_loads_nodes_needs_leave(desk: Desk) -> None:
    assert "--full" in refused(desk, "scan", hosts="hosts.txt", profile="full")


def test_only_scans_of_this_server_run_again(desk: Desk) -> None:
    save(sample_report("not_ready"), Path(".netdoctor/last.json"))
    assert "call scan first" in refused(desk, "rerun", checks=["net.ports"])
    for number in range(RUNS_KEPT + 2):
        report = sample_report("ready")
        object.__setattr__(report.run, "id", f"{number:08}")
        desk.keep(report)
    assert len(desk.runs) == RUNS_KEPT
    assert "no check" in refused(desk, "rerun", checks=["net.prots"])


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("scan", {"hosts": "hosts.txt", "command": "id"}, "command"),
        ("scan", {}, "hosts"),
        ("scan", {"hosts": "hosts.txt", "profile": "huge"}, "huge"),
        ("lint", {}, "files"),
        ("lint", {"text": "x"}, "kind"),
        ("explain_log", {}, "text"),
        ("checks_explain", {"id": "net.prots"}, "did you mean net.ports"),
        ("nothing", {}, "no such tool"),
    ],
)
def test_wrong_arguments_say_what_is_wrong(
    desk: Desk, tool: str, arguments: dict[str, Any], why: str
) -> None:
    assert why in refused(desk, tool, **arguments)


def test_offline_tools_answer(desk: Desk) -> None:
    Path("rank0.log").write_text(LOG, "utf-8")
    found = ask(desk, "explain_log", files=["rank0.log"])
    assert found["causes"]
    assert "rank0.log" in json.dumps(found["untrusted"])
    assert ask(desk, "explain_log", text=LOG)["causes"] == found["causes"]
    assert ask(desk, "explain_word", words=["NCCL_IB_GID_INDEX"])["pages"][0]["name"] == "NCCL_IB_GID_INDEX"
    assert ask(desk, "explain_word", words=["NCCL_IB_GID_INDE"])["near"]
    assert len(ask(desk, "checks_list")["checks"]) == len(load_builtin())
    assert {c["id"] for c in ask(desk, "checks_list", family="net")["checks"]} >= {"net.ports", "net.mtu"}
    assert "Fix:" in ask(desk, "checks_explain", id="net.ports")["manual"]
    assert "torchrun" in ask(desk, "plan", hosts="hosts.txt")["untrusted"]["text"]
    Path("job.sh").write_text("#!/bin/sh\nexport MASTER_PORT=99999\ntorchrun train.py\n", "utf-8")
    assert sum(ask(desk, "lint", files=["job.sh"])["rules"].values()) > 0


def test_saved_reports_are_shown_and_compared(desk: Desk) -> None:
    save(sample_report("not_ready"), Path("old.json"))
    save(sample_report("ready"), Path("new.json"))
    found = ask(desk, "report", report="old.json", check="net.ports")
    assert found["verdict"] == "not_ready"
    assert found["run"] == ""
    assert {one["check"] for one in found["untrusted"]["results"]} == {"net.ports"}
    changed = ask(desk, "diff", old="old.json", new="new.json")
    assert (changed["worse"], changed["new"]) == (False, 0)
    assert changed["healed"] > 0


def test_no_string_of_a_report_leaves_its_marked_field() -> None:
    """Every string of a report is one that nobody knows."""
    answer = answers.report_answer(fill("MARKER"), load_builtin().keys(), ours=True, check="MARKER")
    data = answers.msgspec.to_builtins(answer)
    assert json.dumps(data["causes"]).count("MARKER") > 5
    assert "MARKER" not in json.dumps(trusted(data))


@each_of(HOSTILE)
def test_hostile_text_of_nodes_stays_in_marked_fields(attack: str) -> None:
    text = HOSTILE[attack]
    answer = answers.report_answer(fill(text), load_builtin().keys(), ours=True, check=text, node=text)
    data = answers.msgspec.to_builtins(answer)
    check("report", data)
    assert all(re.fullmatch(WORD, one) for one in strings(trusted(data))), trusted(data)


@each_of(HOSTILE)
def test_hostile_text_of_logs_and_scripts_stays_in_marked_fields(
    attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    desk, text = Desk(tmp_path), HOSTILE[attack]
    given = {
        "explain_log": {"text": f"[rank0]: {text}\n{LOG}{text}\n"},
        "lint": {
            "text": f"#!/bin/sh\nexport MASTER_PORT={text}\n# {text}\ntorchrun {text}\n",
            "kind": "shell",
        },
    }
    for name, arguments in given.items():
        tool = TOOLS[name]
        try:
            answer = tool.work(desk, answers.msgspec.convert(arguments, tool.takes))
        except InputError:
            continue
        data = answers.msgspec.to_builtins(answer)
        check(name, data)
        assert all(re.fullmatch(WORD, one) for one in strings(trusted(data))), trusted(data)


@each_of(HOSTILE)
def test_hostile_hosts_files_stay_in_marked_fields(
    attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hosts file that cannot be read is refused."""
    monkeypatch.chdir(tmp_path)
    Path("hosts.txt").write_text(f"n1 # {HOSTILE[attack]}\n{HOSTILE[attack]}\n", "utf-8", "replace")
    tool = TOOLS["plan"]
    try:
        data = answers.msgspec.to_builtins(tool.work(Desk(tmp_path), tool.takes(hosts="hosts.txt")))  # type: ignore[call-arg]
    except InputError:
        return
    check("plan", data)
    assert trusted(data).keys() == {"cut", "launcher", "nodes", "measured"}


def test_large_answers_are_cut_and_say_so() -> None:
    room = answers.Room()
    found = room.inert({"a": ["x" * 2000] * 1000, "deep": json.loads("[" * 40 + "]" * 40), "n": 10**400})
    assert room.cut
    assert len(json.dumps(found)) < 2 * answers.BYTES_MAX
    assert found["n"] is None
    assert len(found["a"]) == answers.LIST_MAX


def test_commands_of_the_skill_file_are_commands() -> None:
    page = (ROOT / "docs/agents.md").read_text("utf-8")
    skill = page.partition("```markdown\n")[2]
    found = re.findall(r": (netdoctor [^\n]+)", skill)
    assert len(found) >= 7
    for line in found:
        words = line.split()[1:]
        assert build_parser(words[0]).parse_args(words).command == words[0]


@pytest.mark.process
def test_over_stdio(tmp_path: Path) -> None:
    """The real command, as an agent starts it; what it prints by itself does not reach the wire."""
    mcp = pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    import anyio

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "netdoctor", "mcp"], cwd=tmp_path, env=environment
    )

    async def main() -> Any:
        async with mcp.Client(server) as connected:
            return await connected.call_tool("checks_explain", {"id": "net.ports"})

    result = anyio.run(main)
    check("checks_explain", result.structured_content)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_it_ends_with_its_standard_input(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "netdoctor", "mcp"],
        stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"")
