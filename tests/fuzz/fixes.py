"""Printed fixes pasted on drawn nodes: healed, nothing else changed, twice is once, undo restores."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.worlds.fixes import FAMILIES, World

ROOT = Path(__file__).resolve().parents[2]


class Node:
    """A namespace that answers one request after another."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def ask(self, world: World, *shells: str) -> list[dict[str, Any]]:
        """How it is before any command, and after each."""
        asked = {
            "files": world.files,
            "setup": world.setup,
            "ask": world.ask,
            "firewall": world.firewall,
            "shells": shells,
        }
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        states: list[dict[str, Any]] = json.loads(self.process.stdout.readline())
        assert not states[0]["code"], f"the world cannot be set up: {states[0]['error']}\n{world.setup}"
        return states


@contextmanager
def node() -> Iterator[Node]:
    argv = [
        "unshare",
        "-m",
        "-n",
        "-u",
        "-p",
        "-f",
        "--mount-proc",
        sys.executable,
        "-m",
        "tests.worlds.node",
    ]
    with subprocess.Popen(
        argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Node(process)
        assert process.stdin
        process.stdin.close()


def case(family: str, draw: random.Random, on: Node) -> bool:
    """One world; whether there was something to mend."""
    world = FAMILIES[family](draw)
    (first,) = on.ask(world)
    if world.healed(first["said"]):
        return False
    paste, undo = world.fix(first)
    shells = [paste, paste, *([undo, undo] if undo else [])]
    before, once, twice, *back = on.ask(world, *shells)
    told = "\n".join(
        [f"{path}: {content!r}" for path, content in world.files.items()]
        + [
            f"setup {world.setup}",
            f"paste {paste}",
            f"undo {undo}",
            f"said {before['said']} -> {once['said']}",
        ]
        + [
            f"now {path}: {once['files'][path][0]!r}"
            for path in once["files"]
            if once["files"][path] != before["files"].get(path)
        ]
    )
    assert not once["code"], f"exit {once['code']}: {once['error']}\n{told}"
    assert world.healed(once["said"]), f"not healed\n{told}"
    for at in world.kept:
        assert once["said"][at] == before["said"][at], f"output {at} changed\n{told}"
    for path, (content, _) in before["files"].items():
        now = iter(once["files"].get(path, [""])[0].split("\n"))
        for line in content.split("\n"):
            assert (
                not line.strip() or world.ours(path, line) or line in now or line == f"#netdoctor {line}"
            ), f"{path} lost {line!r}\n{told}"
    assert not twice["code"], f"pasted again: exit {twice['code']}: {twice['error']}\n{told}"
    assert twice["files"] == once["files"], f"pasted twice is not once\n{told}"
    for state in back:
        assert not state["code"], f"undo: exit {state['code']}: {state['error']}\n{told}"
        changed = [
            path
            for path in {*state["files"], *before["files"]}
            if whole(state["files"].get(path)) != whole(before["files"].get(path))
        ]
        assert not changed, f"undo left {[(path, state['files'].get(path)) for path in changed]}\n{told}"
        assert state["said"] == before["said"], f"undo: {state['said']}\n{told}"
    return True


def whole(file: list[Any] | None) -> list[Any]:
    """A file as far as an undo restores it: one that was not there is empty, and the last line has an end."""
    text, mode = file or ["", None]
    return [text.rstrip("\n"), mode if text else None]


def run(seed: int, seconds: float, families: tuple[str, ...] = tuple(FAMILIES)) -> int:
    """Run worlds drawn from `seed`, of each family in turn; how many had something to mend."""
    ends, number, mended = time.monotonic() + seconds, 0, Counter[str]()
    with node() as on:
        while time.monotonic() < ends:
            family = families[number % len(families)]
            try:
                mended[family] += case(family, random.Random(f"{seed}/{number}"), on)
            except Exception as error:
                raise AssertionError(f"fixes: {family}, seed {seed}, case {number}: {error}") from error
            number += 1
    print(f"  mended: {', '.join(f'{count} {family}' for family, count in sorted(mended.items()))}")
    return mended.total()
