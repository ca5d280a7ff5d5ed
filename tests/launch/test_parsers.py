"""What is written for other programs, read by their own parsers."""

import argparse
import ast
import collections
import logging
import os
import random
import re
import shlex
import string
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from netdoctor import launch
from netdoctor.errors import InputError
from netdoctor.launch import LaunchPlan
from tests.launch import theirs
from tests.launch.build import evidence, planned, targets

ODD = string.printable.replace("\n", "").replace("\r", "")


def texts(plan: LaunchPlan) -> dict[str, str]:
    return {part.name: part.text for part in launch.parts(plan)}


def a_plan(dice: random.Random) -> LaunchPlan:
    """For nodes of random names with random slots, and variables of random text."""
    nodes = []
    for one in targets(dice.randint(1, 12)):
        name = f"{dice.choice('abz')}{dice.choice(('-', '_', '.', ''))}{one.order}{'0' * dice.randint(0, 2)}"
        nodes.append(replace(one, id=name, host=name, slots=dice.randint(1, 16)))
    env = {f"V{i}": "".join(dice.choices(ODD, k=dice.randint(0, 12))) for i in range(dice.randint(0, 4))}
    return planned(nodes, None, "deepspeed", env=env)


class DeepSpeed:
    """Its readers of a hostfile and of environment files, from its own source."""

    def __init__(self, package: Path) -> None:
        runner = theirs.tree(package / "launcher" / "runner.py")
        (kind,) = theirs.named(theirs.tree(package / "launcher" / "multinode_runner.py"), "MultiNodeRunner")
        add = theirs.run(theirs.named(kind, "add_export"), {})["add_export"]
        self.exports: dict[str, str] = {}
        self.names: dict[str, Any] = {
            "re": re,
            "os": os,
            "collections": collections,
            "logger": logging.getLogger("theirs"),
            "runner": SimpleNamespace(add_export=lambda key, value: add(self, key, value)),
            "DEEPSPEED_ENVIRONMENT_NAME": ".deepspeed_env",
        }
        theirs.run(theirs.named(runner, "_parse_hostfile"), self.names)
        (self.loop,) = theirs.loops_over(runner, "DEEPSPEED_ENVIRONMENT_PATHS")

    def hosts(self, text: str) -> list[tuple[str, int]]:
        return list(self.names["_parse_hostfile"](text.splitlines(keepends=True)).items())

    def environment(self, folder: Path) -> dict[str, str]:
        """What it writes behind ``export NAME=`` for a shell on each node, by name."""
        self.exports = {}
        self.names["DEEPSPEED_ENVIRONMENT_PATHS"] = [str(folder)]
        theirs.run([self.loop], self.names)
        return self.exports


def test_deepspeed_reads_its_files(tmp_path: Path) -> None:
    deepspeed = DeepSpeed(theirs.package("NETDOCTOR_TEST_DEEPSPEED", "deepspeed"))
    dice = random.Random(20)
    taken = refused = 0
    said: list[tuple[str, str]] = []
    while taken < 60:
        plan = a_plan(dice)
        try:
            made = texts(plan)
        except InputError:
            refused += 1
            continue
        taken += 1
        assert deepspeed.hosts(made["hostfile"]) == [(node.host, node.count) for node in plan.nodes]
        (tmp_path / ".deepspeed_env").write_text(made[".deepspeed_env"])
        exports = deepspeed.environment(tmp_path)
        wanted = {name: value.text for name, value in plan.env.items() if not name.startswith("MASTER_")}
        assert exports.keys() == wanted.keys()
        # As PDSHRunner puts them in front of what a shell runs on each node.
        line = "".join(f"export {name}={text}; " for name, text in exports.items())
        shown = "".join(f'printf "%s\\0" "${name}"; ' for name in wanted)
        said.append((line + shown, "".join(f"{text}\0" for text in wanted.values())))
    assert refused > 10
    done = subprocess.run(
        ["sh", "-c", "\n".join(line for line, _ in said)],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", "".join(text for _, text in said))


def test_accelerate_reads_its_command_line() -> None:
    package = theirs.package("NETDOCTOR_TEST_ACCELERATE", "accelerate")
    commands, names = package / "commands", dict[str, Any](argparse=argparse)
    utils = theirs.tree(commands / "utils.py")
    for statements in (
        theirs.named(theirs.tree(package / "utils" / "constants.py"), "TORCH_DYNAMO_MODES"),
        theirs.named(theirs.tree(commands / "config" / "config_utils.py"), "DYNAMO_BACKENDS"),
        [node for node in utils.body if not isinstance(node, ast.Import | ast.ImportFrom)],
        theirs.named(
            theirs.tree(commands / "launch.py"),
            "options_to_group",
            "clean_option",
            "CustomHelpFormatter",
            "launch_command_parser",
        ),
    ):
        theirs.run(statements, names)
    parser = names["launch_command_parser"]()
    script = ("train.py", "--lr", "1e-4", "a b", "$(id)")
    plan = planned(targets(3), evidence(3), "accelerate", script=script)
    for rank, text in enumerate(texts(plan).values()):
        line = text[text.index("exec accelerate launch") :].replace("\\\n", " ")
        words = shlex.split(line.replace("$MASTER_ADDR", "10.0.0.1").replace("$MASTER_PORT", "29500"))
        found = parser.parse_args(words[3:])
        assert (found.num_machines, found.num_processes, found.machine_rank) == (3, 24, rank)
        assert (found.main_process_ip, found.main_process_port) == ("10.0.0.1", 29500)
        assert (found.training_script, *found.training_script_args) == script
        assert found.multi_gpu
        assert found.same_network
