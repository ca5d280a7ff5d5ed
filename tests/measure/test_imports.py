"""Imports on nodes: the real program in real interpreters, and answers that cannot be."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netdoctor.agent.programs import import_ as import_program
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.software import Import, Imports, Job
from netdoctor.measure import imports as module
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.measure.imports import imports, program
from netdoctor.store import Store
from tests.agent import trees
from tests.checks import build as healthy
from tests.checks import build_hw as hw
from tests.core.fake import FakeTransport

GOOD: dict[str, Any] = {
    "name": "torch",
    "modules": ["torch"],
    "version": "2.6.0",
    "error": "",
    "seconds": 1.5,
}


def run(
    said: Any, job: Job | None = None, spawned: list[Any] | None = None, **facts: Any
) -> Imports | Missing:
    """One node. said: what `converse` answers."""
    store = Store()
    store.put("software", "n1", hw.software(**facts))

    def spawn(node: str, request: Any) -> Any:
        (spawned if spawned is not None else []).append(request.args)
        return {"ranks": [{"pid": 1}]}

    def converse(node: str, request: Any) -> Any:
        return said() if callable(said) else said

    answers = {"spawn": spawn, "converse": converse, "stop": lambda node, request: {}}
    participants = Participants(nodes=("n1",), addresses={"n1": healthy.address(1)})
    transport = FakeTransport(answers=answers)
    context = Context(transport=transport, participants=participants, store=store, job=job or healthy.job())
    return imports(context)["n1"]


def rank(*events: Any, running: bool = True, **more: Any) -> Any:
    return {"ranks": [{"running": running, "events": list(events), **more}]}


BEGIN = {"event": "begin", "text": "torch"}


def test_the_answer_is_the_fact() -> None:
    found = run(rank(BEGIN, {"event": "result", "rows": [GOOD]}))
    assert found == Imports(imports=(Import(name="torch", modules=("torch",), version="2.6.0", seconds=1.5),))


def test_who_is_asked_for_what() -> None:
    spawned: list[Any] = []
    asked = healthy.job(packages=("vllm", "Torch", "absent"), env={"PYTHONPATH": "/x", "HF_HOME": "/y"})
    run({"ranks": []}, asked, spawned, packages={"vllm": "0.8", "Torch": "2", "absent": None})
    assert spawned[0]["ranks"] == [{"names": ["torch", "vllm"]}]
    assert spawned[0]["env"] == {"PYTHONPATH": "/x"}
    found = run(rank(), torch=None)
    assert isinstance(found, Missing)
    assert found.why is Why.NOT_EXAMINED


@pytest.mark.parametrize(
    "said",
    [
        {"ranks": []},
        rank({"event": "result", "rows": [{**GOOD, "name": "another"}]}),
        rank({"event": "result", "rows": [{**GOOD, "error": 3}]}),
        rank({"event": "result", "rows": [GOOD, GOOD]}),
        rank("x"),
    ],
)
def test_answers_that_cannot_be(said: Any) -> None:
    found = run(said)
    assert isinstance(found, Missing)
    assert found.why is Why.UNPARSABLE


def test_a_crash_is_said_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(rank(BEGIN, running=False, code=-11, stderr="a\nFatal Python error: x\n"))
    text = "its process ended with status -11 Fatal Python error: x"
    assert found == Imports(imports=(Import(name="torch", error=text, status=-11),))
    found = run(rank(running=False, code=1, stderr="bad interpreter"))
    assert isinstance(found, Missing)
    assert found.why is Why.FAILED
    monkeypatch.setattr(module, "THROUGH_S", 0.05)
    asked: list[Any] = []
    found = run(lambda: asked.append("again") or rank(BEGIN))
    assert len(asked) <= 2  # an answer that comes at once is no reason to ask at once
    assert isinstance(found, Missing)
    assert (found.why, found.detail.endswith("s, at torch")) == (Why.TIMED_OUT, True)


def test_names_of_modules() -> None:
    assert import_program.modules_of("PyYAML") == ["yaml"]
    assert import_program.modules_of("no-such-thing") == ["no_such_thing"]
    assert import_program.modules_of("pytest") == ["pytest"]


@pytest.mark.process
def test_the_program_in_an_interpreter(tmp_path: Path) -> None:
    """Noise is swallowed, an error's last line told, the rest goes on; nothing is written."""
    trees.make(
        tmp_path,
        {
            "noisy/__init__.py": "print('x' * 9); __version__ = '1.2'\n",
            "noisy-1.2.dist-info/METADATA": "Name: noisy\nVersion: 1.2\n",
            "noisy-1.2.dist-info/top_level.txt": "noisy\ntests\n",
            "broken.py": "raise OSError('first\\n\\x1b[31mlibx.so.1: cannot open shared object file\\n')\n",
            "leaves.py": "import sys; sys.exit(3)\n",
            "ends.py": "import os; os.abort()\n",
        },
    )
    before = sorted(tmp_path.rglob("*"))
    names = ["noisy", "broken", "leaves", "not-there", "ends"]
    text = f"CONFIG = {{'names': {names!r}}}\n" + program()
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)

    def said(config: list[str]) -> subprocess.CompletedProcess[str]:
        code = text.replace(repr(names), repr(config))
        return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)

    done = said(names[:-1])

    *_, result = map(json.loads, done.stdout.splitlines())
    errors = {row["name"]: row["error"] for row in result["rows"]}
    assert errors == {
        "noisy": "",
        "broken": "OSError: \x1b[31mlibx.so.1: cannot open shared object file",
        "leaves": "SystemExit: 3",
        "not-there": "ModuleNotFoundError: No module named 'not_there'",
    }
    assert result["rows"][0]["version"] == "1.2"
    assert sorted(tmp_path.rglob("*")) == before
    crashed = said(names)
    assert crashed.returncode == -6
    assert json.loads(crashed.stdout.splitlines()[-1]) == {"event": "begin", "text": "ends"}
