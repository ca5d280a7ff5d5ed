"""Printed fixes pasted on drawn worlds: healed, nothing else changed, twice is once, undo restores."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from netdoctor.checks.gloo.ifname import gloo_ifname
from netdoctor.checks.net.resolve import net_resolve
from netdoctor.facts.net import ResolveFacts
from netdoctor.model import Finding
from tests.checks.build import env, job, nets, nodes, resolves
from tests.checks.build import hosts as host_facts
from tests.worlds import hosts

OWN_NAME, PEERS = "give the host name", "add the names"
ROOT = Path(__file__).resolve().parents[2]


class Inside:
    """A namespace that answers one request after another."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def ask(self, text: str, *shells: str) -> list[dict[str, Any]]:
        """The state of a hosts file before, and after each command."""
        names = sorted(hosts.names_in(text))
        asked = {"hostname": hosts.OWN, "hosts": text, "names": names, "shells": shells}
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        states: list[dict[str, Any]] = json.loads(self.process.stdout.readline())
        return states


@contextmanager
def inside() -> Iterator[Inside]:
    """A namespace with an /etc, a host name and a network of its own."""
    argv = ["unshare", "-m", "-n", "-u", sys.executable, "-m", "tests.worlds.inside"]
    with subprocess.Popen(
        argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Inside(process)
        assert process.stdin
        process.stdin.close()


def judged(state: dict[str, Any]) -> list[Finding]:
    """What both checks of the own name say of the node."""
    facts = {**resolves(3), hosts.OWN: msgspec.convert(state["facts"], type=ResolveFacts)}
    envs = {node: env() for node in facts}
    found = [*net_resolve(facts, nets(3), host_facts(3), nodes(3), job(3))]
    found += gloo_ifname(nets(3), facts, host_facts(3), envs, job(3))
    return [one for one in found if one.cause and one.target == hosts.OWN]


def case(draw: random.Random, world: Inside) -> bool:
    """One hosts file; whether there was something to mend."""
    text = hosts.text(draw)
    (first,) = world.ask(text)
    broken = [one.cause for one in judged(first) if one.cause]
    fixes = [(one.key, fix) for one in broken for fix in one.fixes if fix.text.startswith((OWN_NAME, PEERS))]
    for key, fix in fixes:
        assert fix.commands, f"no command for {text!r}"
        paste, take_back = fix.commands[0].shell, fix.undo[0].shell
        before, once, twice, back, again = world.ask(text, paste, paste, take_back, take_back)
        message = f"{text!r}\n-> {once['hosts']!r}\nby {paste}"
        assert once["code"] == twice["code"] == back["code"] == again["code"] == 0, message
        assert key not in [one.cause.key for one in judged(once) if one.cause], message
        mended = hosts.is_own if fix.text.startswith(OWN_NAME) else hosts.is_peer
        for name, was in before["answers"].items():
            if was[0].startswith("error"):
                continue
            if not mended(name):
                assert once["answers"][name] == was, f"{name}: {was}, then {once['answers'][name]}\n{message}"
            else:
                assert not once["answers"][name][0].startswith("error"), f"{name} is lost\n{message}"
        left = iter(lines(once["hosts"]))
        # In their order.
        assert all(line in left for line in lines(text) if not touched(line, mended)), message
        assert twice["hosts"] == once["hosts"], message
        assert (back["hosts"], back["mode"], back["kept"]) == (text, before["mode"], False), message
        assert again["hosts"] == text, f"undo twice: {message}"
    return bool(fixes)


def lines(text: str) -> list[str]:
    return [line for line in text.replace("\r", "").split("\n") if line.strip()]


def touched(line: str, mended: Callable[[str], bool]) -> bool:
    return any(map(mended, line.partition("#")[0].split()[1:]))


def run(seed: int, seconds: float) -> int:
    """Run worlds drawn from `seed`; how many had something to mend."""
    ends, number, mended = time.monotonic() + seconds, 0, 0
    with inside() as world:
        while time.monotonic() < ends:
            try:
                mended += case(random.Random(f"{seed}/{number}"), world)
            except Exception as error:
                raise AssertionError(f"worlds: seed {seed}, case {number}: {error}") from error
            number += 1
    return mended
