"""The command line that starts an agent, under every interpreter found here."""

import ast
import shutil
import subprocess
from importlib import resources

import pytest

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
        ("python3", "exec python3 -E -s -c '"),
        ("~/envs/a b/bin/python", "exec ~/'envs/a b/bin/python' -E -s -c '"),
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


def test_what_travels_is_the_same_program_and_fits_into_a_pipe() -> None:
    for name, text in bundle.modules().items():
        source = resources.files("netdoctor.agent").joinpath(f"{name}.py").read_text("utf-8")
        assert ast.dump(ast.parse(text), include_attributes=True) == ast.dump(
            ast.parse(source), include_attributes=True
        )
    assert len(bundle.build_bundle(marker=harness.MARKER, deadline_s=60, collectors={})) < 65536


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
