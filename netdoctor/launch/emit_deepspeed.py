"""DeepSpeed: hostfile, environment file and the command of its launcher, which goes over pdsh.

Read of 0.16.4: deepspeed/launcher/runner.py and multinode_runner.py.
"""

import re

from netdoctor.errors import InputError
from netdoctor.launch import shell
from netdoctor.launch.model import LaunchPlan, Part, Parts, Value
from netdoctor.launch.shell import comment
from netdoctor.text import quoted

ENV_FILE = ".deepspeed_env"
# The command line of each node goes through pdsh, which replaces %h and the like, and then through a shell.
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./ -]*")
# Values stand between double quotes there.
_IN_QUOTES = re.compile(r"[^\"\\$`%\n\r!]*")


def parts(plan: LaunchPlan) -> Parts:
    """hostfile, .deepspeed_env and run.sh. Raises InputError for what would not arrive as it is meant."""
    _check(plan)
    return [
        Part(name="hostfile", text=_hostfile(plan), purpose="for --hostfile"),
        Part(
            name=ENV_FILE,
            text=env_file(plan),
            purpose="what every node gets; neither comments nor blank lines",
        ),
        Part(name="run.sh", text=_run(plan), purpose="where pdsh, and ssh to every node, work", runs=True),
    ]


def job_env(plan: LaunchPlan) -> dict[str, Value]:
    """The variables that no launcher sets by itself."""
    return {name: value for name, value in plan.env.items() if not name.startswith("MASTER_")}


def _hostfile(plan: LaunchPlan) -> str:
    lines = [comment(plan.head)]
    lines += [shell.commented(f"{node.host} slots={node.count}", node.processes.why) for node in plan.nodes]
    return shell.text(lines)


def env_file(plan: LaunchPlan) -> str:
    """``NAME=value`` lines. Each is split at its first ``=``, and nothing else is allowed."""
    return shell.text(f"{name}={value.text}" for name, value in job_env(plan).items())


def _run(plan: LaunchPlan) -> str:
    env = plan.env
    lines = ["#!/bin/sh", *shell.opening(plan), *shell.left_out(plan), "set -eu"]
    lines.append('here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)')
    for name, value in job_env(plan).items():
        lines.append(comment(f"{name}={value.text}: {value.why}"))
    lines += shell.of_single_nodes(plan)
    lines += [
        shell.commented(f"{name}={quoted(env[name].text)}", env[name].why)
        for name in ("MASTER_ADDR", "MASTER_PORT")
    ]
    ports = {node.port for node in plan.nodes}
    ssh = [f"--ssh_port={port}" for port in ports if port]
    if len(ports) > 1:
        lines.append(
            comment("nodes have different SSH ports, and pdsh takes one: put them into ~/.ssh/config")
        )
        ssh = []
    if any(node.user for node in plan.nodes):
        lines.append(comment("login users belong into ~/.ssh/config: DeepSpeed takes none"))
    lines.append(comment("this folder of the program and this interpreter must be there on every node"))
    pythons = {shell.python(node) for node in plan.nodes if node.python}
    command = [f"{pythons.pop()} -m deepspeed.launcher.runner"] if len(pythons) == 1 else ["deepspeed"]
    command = ['DS_ENV_FILE="$here/.deepspeed_env"', *command, '--hostfile="$here/hostfile"', *ssh]
    command += ['--master_addr="$MASTER_ADDR"', '--master_port="$MASTER_PORT"']
    if len(plan.nodes) == 1:
        command.append("--force_multi")  # one node is started here, whichever it is
    command += [] if shell.is_python(plan) else ["--no_python"]
    words = shell.script(plan)
    command += ["--module", *words[1:]] if words[0] == "-m" else words
    return shell.text([*lines, shell.command(command)])


def _check(plan: LaunchPlan) -> None:
    """Raises InputError."""
    hosts = [node.host for node in plan.nodes]
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise InputError(f"{twice[0]} is listed twice, and DeepSpeed takes each host once")
    for word in plan.options.script:
        if not _PLAIN.fullmatch(word):
            raise InputError(
                f"--script: {word!r} goes through a shell on each node under DeepSpeed, and would not arrive "
                "as it is; put it into a file, or into the program"
            )
    for name, value in job_env(plan).items():
        if not _IN_QUOTES.fullmatch(value.text) or value.text != value.text.strip():
            raise InputError(
                f"{name}={value.text!r} ({value.source}) goes between double quotes of a shell on each node "
                "under DeepSpeed, and would not arrive as it is"
            )
