"""The command line that starts an agent, under every interpreter found here."""

import ast
import dis
import importlib.util
import marshal
import os
import pkgutil
import shutil
import subprocess
import sys
import uuid
import zlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from netdoctor import facts
from netdoctor.check import Profile
from netdoctor.engine.gathering import first_groups
from netdoctor.facts.base import FACT_TYPES
from netdoctor.facts.software import Job
from netdoctor.transport import bundle
from tests.agent import harness

PYTHONS = harness.interpreters()
SUPPORTED = [f"3.{minor}" for minor in range(6, 14)]


def python_or_skip(version: str) -> str:
    if version not in PYTHONS:
        pytest.skip(f"no Python {version} on this machine")
    return PYTHONS[version]


def test_bootstrap_is_inert_inside_single_quotes_of_any_shell() -> None:
    assert not set("\n\r'!\\") & set(bundle.BOOTSTRAP)
    assert bundle.BOOTSTRAP.isascii()
    assert len(bundle.BOOTSTRAP) < 900


@pytest.mark.parametrize(
    ("python", "start"),
    [
        ("python3", "exec python3 -E -S -s -c '"),
        ("~/envs/a b/bin/python", "exec ~/'envs/a b/bin/python' -E -S -s -c '"),
        ("/opt/x;y/python", "exec '/opt/x;y/python' -E"),
    ],
)
def test_command_quotes_the_interpreter(python: str, start: str) -> None:
    assert bundle.command(python, "m4").startswith(start)


@pytest.mark.interpreters
@pytest.mark.parametrize("version", SUPPORTED)
def test_agent_says_hello_and_answers_ping(version: str) -> None:
    with harness.agent(python_or_skip(version)) as agent:
        assert agent.hello["python"].startswith(version + ".")
        ping = agent.request("ping")
        assert ping["recv_s"] <= ping["send_s"]


def test_what_travels_is_the_same_program() -> None:
    for name in (*bundle.modules(), "loader"):
        source = (
            resources.files("netdoctor.agent").joinpath(f"{name.replace('.', '/')}.py").read_text("utf-8")
        )
        assert ast.dump(ast.parse(bundle.text(name)), include_attributes=True) == ast.dump(
            ast.parse(source), include_attributes=True
        )


def test_what_is_compiled_before_hello_is_small() -> None:
    """Bytes of source: what the bootstrap runs, and its one line. Too small, too, to fill a pipe that is
    never read, as by a Python that is too old."""
    first = bundle.build_bundle(marker=harness.MARKER, deadline_s=60, collectors={})
    assert len(first) < 4096
    assert len(bundle.BOOTSTRAP) + len(zlib.decompress(first[9:])) < 8192


def test_modules_come_as_code_for_this_python_and_as_text_for_others() -> None:
    def kinds(tag: str, name: str = "") -> dict[str, type]:
        frame = bundle.pack(tag, name)
        assert int(frame[:8], 16) == len(frame) - 9
        made_for, _, packed = frame[10:].partition(b"\n")
        content = marshal.loads(zlib.decompress(packed))
        for what in content.values():
            assert made_for == (bundle.own_tag().encode() if isinstance(what, bytes) else b"")
        return {module: type(what) for module, what in content.items()}

    own = bundle.own_tag()
    first = kinds(own)
    assert set(first.values()) == {bytes}
    assert set(kinds("cpython-36-3379").values()) == set(kinds("").values()) == {str}
    # Whatever is asked for comes with what it imports, once.
    assert set(kinds(own, "operations.connect")) == {"operations.connect", "operations.listen", "system.icmp"}
    assert kinds(own, "system.files") == kinds(own, "os") == kinds(own, "x" * 10_000) == {}
    everything = set(first).union(*(kinds(own, name) for name in bundle.modules()))
    assert everything == set(bundle.modules())


def test_code_travels_without_docstrings_and_nothing_else_is_missing() -> None:
    def functions(code: CodeType) -> Iterator[CodeType]:
        yield code
        for one in code.co_consts:
            if isinstance(one, CodeType):
                yield from functions(one)

    left_out = 0
    for name, source in bundle.modules().items():
        whole = compile(source, name, "exec", dont_inherit=True)
        sent = bundle.bare(whole, name, ours=True)
        for one, other in zip(functions(whole), functions(sent), strict=True):
            assert one.co_code == other.co_code
            pairs = zip(one.co_consts, other.co_consts, strict=True)
            gone = [i for i, (before, after) in enumerate(pairs) if after is None is not before]
            used = {step.arg for step in dis.get_instructions(one) if step.opcode in dis.hasconst}
            assert not used.intersection(gone), (name, one.co_qualname)
            left_out += len(gone)
        written = (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef))
        left_out -= sum(ast.get_docstring(one) is not None for one in written)
    assert left_out == 0


@pytest.mark.parametrize("tag", [bundle.own_tag(), "cpython-36-3379"])
def test_modules_that_come_unasked_are_taken_where_they_fit(tag: str) -> None:
    """Code of another Python is left, and asked for as text."""
    ping = bundle.request_frame({"id": 1, "op": "ping"})
    frame = bundle.pack(bundle.own_tag()).replace(bundle.own_tag().encode(), tag.encode(), 1)[9:]
    agent = harness.AgentProcess(sys.executable)
    try:
        agent.send_raw(b"%08x\n" % len(frame) + frame + ping)
        hello, first = agent.read()["hello"], agent.read()
        if tag != bundle.own_tag():
            assert first == {"id": None, "need": f"agent {hello['tag']}"}
            agent.send_raw(bundle.pack(""))
            first = agent.read()
        assert (first["id"], first["ok"]) == (1, True)
    finally:
        agent.stop()


def passive(profile: Profile) -> dict[str, dict[str, Any]]:
    """The facts that a scan asks every node for, with what it says to them."""
    for module in pkgutil.iter_modules(facts.__path__, facts.__name__ + "."):
        importlib.import_module(module.name)
    groups = {info.group for info in FACT_TYPES.values() if info.origin == "agent" and not info.collector}
    return first_groups(groups, [], Job(), profile)


def test_first_of_all_go_the_facts_that_every_scan_asks_for() -> None:
    asked = {*passive(Profile.LAUNCH), "routes"}  # of routes as soon as all nodes have said where they are
    assert {name for name in bundle.first() if name.startswith("facts.")} >= {f"facts.{g}" for g in asked}


@pytest.fixture
def stale_shm() -> Iterator[None]:
    """What a job that was killed leaves: its node is one that people scan."""
    file = Path(f"/dev/shm/nccl-{uuid.uuid4().hex[:6]}")
    file.write_bytes(b"x")
    os.utime(file, (0, 0))
    yield
    file.unlink()


@pytest.mark.usefixtures("stale_shm")
def test_passive_facts_import_next_to_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Modules that are Python, and not part of the interpreter's own start: a node compiles or reads each."""
    look = "import sys\ndef collect(args): return {'modules': sorted(sys.modules)}"
    start = "import os, sys, zlib; sys.stdin.buffer; print(*sys.modules)"
    bare = subprocess.run([sys.executable, "-S", "-c", start], capture_output=True, text=True, check=True)
    # Not in a folder named for this test: "pass" in a path has it looked through for passwords.
    python = harness.empty_environment(tmp_path_factory.mktemp("empty"))
    with harness.agent(python, collectors={"look": look}) as agent:
        agent.facts(**passive(Profile.QUICK))
        agent.facts(routes={"destinations": {"4": "127.0.0.1", "6": "::1", "?": "bücher"}})
        loaded = set(agent.facts(look={})["look"]["value"]["modules"]) - set(bare.stdout.split())
    ours = {name for name in loaded if name.partition(".")[0] in ("ndagent", "ndagent_collector_look")}
    specs = {name: importlib.util.find_spec(name) for name in loaded - ours}
    python = {name for name, spec in specs.items() if spec and str(spec.origin).endswith(".py")}
    assert python <= {"struct", "types", "ctypes", "ctypes._endian"}


def test_who_cannot_run_says_why() -> None:
    """No room for threads before hello, which then is none; a library that lacks a module in a frame."""
    first = bundle.build_bundle(marker=harness.MARKER, deadline_s=10, collectors={})
    said = zlib.decompress(first[9:])
    full = zlib.compress(said.replace(b"start_new_thread(wait", b"no_such_thing(wait"))
    lacks = zlib.compress(said.replace(b"room_for_threads(THREADS_KEPT)", b"sys.modules['resource'] = None"))
    asked = bundle.pack(bundle.own_tag()) + bundle.request_frame({"id": 1, "op": "ping"})
    full_out, lacks_out = (
        subprocess.run(
            bundle.argv(sys.executable, harness.MARKER),
            input=b"%08x\n" % len(body) + body + asked,
            capture_output=True,
            timeout=20,
            check=False,
        )
        for body in (full, lacks)
    )
    assert (full_out.stdout, full_out.returncode) == (b"", 1)
    assert b"no_such_thing" in full_out.stderr
    assert b"hello" in lacks_out.stdout
    assert b'"detail": "ModuleNotFoundError: import of resource halted' in lacks_out.stdout


@pytest.mark.interpreters
@pytest.mark.parametrize("version", ["2.7", "3.5"])
def test_old_python_names_itself_and_ends_well(version: str) -> None:
    agent = harness.AgentProcess(python_or_skip(version))
    hello = agent.read()["hello"]
    assert hello["old_python"].startswith(version)
    assert hello["executable"]
    assert agent.process.wait(5) == 0
    agent.stop()


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "zsh", "csh", "tcsh", "fish"])
def test_command_survives_login_shells(shell: str) -> None:
    path = shutil.which(shell)
    if not path:
        pytest.skip(f"no {shell} on this machine")
    line = bundle.command("python3", harness.MARKER)
    packed = bundle.build_bundle(marker=harness.MARKER, deadline_s=10, collectors={})
    done = subprocess.run([path, "-c", line], input=packed, capture_output=True, timeout=20, check=False)
    assert done.stdout.startswith(b"\x1e" + harness.MARKER.encode() + b" ")
    assert done.returncode == 0


def test_missing_interpreter_ends_with_127() -> None:
    line = bundle.command("/nonexistent/python", "m")
    assert subprocess.run(["sh", "-c", line], capture_output=True, check=False).returncode == 127


def test_modules_in_the_login_directory_are_not_imported(tmp_path) -> None:  # type: ignore[no-untyped-def]
    for name in ("json", "zlib", "os", "ndagent"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hijacked')")
    line = bundle.command("python3", harness.MARKER)
    packed = bundle.build_bundle(marker=harness.MARKER, deadline_s=10, collectors={})
    done = subprocess.run(
        ["sh", "-c", line],
        input=packed,
        capture_output=True,
        timeout=20,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0
    assert b"hijacked" not in done.stdout + done.stderr


def test_bundle_is_built_once() -> None:
    one = bundle.build_bundle(marker="a", deadline_s=5, collectors={"x": "y"})
    assert one is bundle.build_bundle(marker="a", deadline_s=5, collectors={"x": "y"})
