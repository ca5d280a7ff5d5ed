"""`netdoctor gate` as a process, over a real lab: what it starts is the command itself, or nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from netdoctor.lab import Lab
from tests.scan.faults import put
from tests.scan.harness import NETDOCTOR, NEXT, REPO, environment, netdoctor, shell, until
from tests.scan.test_ends import agents_run, running

PAGE = REPO / "docs" / "gate.md"
# Each fails by itself, and the check that says so of which node; those of one group share a scan.
FAULTS: list[dict[str, tuple[str, str]]] = [
    {
        "node0 old-python": ("ssh.login", "node0"),
        "node1 env GLOO_SOCKET_IFNAME=ens9": ("gloo.ifname", "node1"),
        "node2 full-disk": ("host.disk", "node2"),
        "node3 env NCCL_SOCKET_IFNAME=ens9": ("nccl.ifname", "node3"),
    },
    {
        "node0 login-shell": ("ssh.login", "node0"),
        "node1 sshd-down": ("ssh.login", "node1"),
        "node2 wrong-key": ("ssh.login", "node2"),
        "node3 host-key": ("ssh.login", "node3"),
    },
    {"node1 drop": ("net.ports", "node1")},
]
# What the command has that is not its own: open files, processes, signals that are blocked or ignored.
INHERITED = """
import glob, json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
files = sorted(int(name) for name in os.listdir("/proc/self/fd"))
print(json.dumps({
    "pid": os.getpid(), "cwd": os.getcwd(),
    "files": [n for n in files if os.path.exists(f"/proc/self/fd/{n}")],
    "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
    "blocked": status["SigBlk"].strip(), "ignored": status["SigIgn"].strip(),
    "job": {k: v for k, v in os.environ.items() if k.startswith(("MASTER", "GLOO"))},
    "told": {k: v for k, v in os.environ.items() if k.startswith("NETDOCTOR_GATE_")},
}))
"""
# Python ignores SIGPIPE (13) and SIGXFSZ (25) by itself.
PYTHONS_OWN = 1 << 12 | 1 << 24
REUSE = ("--max-age", "10m")
ITS_OWN = {"MASTER_ADDR": "node0"}


def argv(lab: Lab, *args: str) -> list[str]:
    return ["gate", "--ssh-config", str(lab.ssh_config), str(lab.hosts_file), *args]


def test_gate_refuses_on_each_of_nine_faults(lab4: Lab, folder: Path) -> None:
    ran = folder / "ran"
    for faults in FAULTS:
        put(lab4, tuple(faults))
        done = netdoctor(*argv(lab4, "--", "touch", str(ran)), cwd=folder)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        told = [line for line in done.stderr.splitlines() if line.startswith("FAIL ")]
        for check, node in faults.values():
            assert any(f" {check} " in line and node in line for line in told), done.stderr
        assert done.stderr.splitlines()[-1].startswith("netdoctor gate: not started, NOT READY; ")
        lab4.heal()
    assert not ran.exists()


def test_every_command_on_the_page_works(lab4: Lab, folder: Path) -> None:
    """With a fault of one node of four; the third starts on the others, after a scan of these alone."""
    put(lab4, ("node2 full-disk",))
    shutil.copy(lab4.hosts_file, folder / "hosts.txt")
    (folder / "launch.sh").write_text('#!/bin/sh\necho "job on $NETDOCTOR_GATE_NODES: $*"\n')
    (folder / "launch.sh").chmod(0o755)
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    text = f"\necho \"exit $?\"; echo '{NEXT}'\n".join([*blocks, ""])
    done = shell(folder, text, NETDOCTOR_SSH_CONFIG=str(lab4.ssh_config))
    said = [part.strip().splitlines() for part in done.stdout.split(NEXT)]
    assert len(said) == len(blocks) + 1 == 6, done.stderr
    assert said[0] == ["exit 1"], done.stderr
    assert said[1] == ["not on these nodes; try again later", "exit 0"]
    assert said[2] == ["job on node0,node1,node3: good.txt", "exit 0"], done.stderr
    good = (folder / "good.txt").read_text().splitlines()
    assert [line.split()[0] for line in good] == ["node0", "node1", "node3"]
    last = json.loads((folder / ".netdoctor" / "last.json").read_text())
    assert (last["verdict"]["state"], last["matrix"]["nodes"]) == ("ready", ["node0", "node1", "node3"])
    # What this machine is like is its own affair.
    starts = f"job on {os.uname().nodename}: "
    assert said[3] in ([starts, "exit 0"], ["exit 1"], ["exit 3"]), done.stderr
    assert "netdoctor gate: " in done.stderr
    assert said[4] in (["job on localhost: ", "exit 0"], ["exit 99"]), done.stderr


def test_what_starts_is_the_command_itself(lab4: Lab, folder: Path) -> None:
    """With a scan once; the report of that scan stands for those after it."""
    before, listening = running(lab4), {node: set(lab4.listeners(node)) for node in lab4.nodes}
    process = start(lab4, folder, "python3", "-c", INHERITED)
    out, err = process.communicate(timeout=90)
    found = json.loads(out)
    assert found["told"] == {
        "NETDOCTOR_GATE_VERDICT": "ready",
        "NETDOCTOR_GATE_NODES": "node0,node1,node2,node3",
        "NETDOCTOR_GATE_NNODES": "4",
    }
    # As it was measured; what the user has set stays.
    address = lab4.address("node0")
    assert found["job"] == {"MASTER_ADDR": "node0", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"}
    assert f"keeps your MASTER_ADDR=node0 (measured: {address})" in err
    assert (found["pid"], found["cwd"]) == (process.pid, str(folder))
    assert (found["files"], found["children"].strip(), int(found["blocked"], 16)) == ([0, 1, 2], "", 0)
    ours = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    theirs = PYTHONS_OWN | int(ours["SigIgn"], 16)  # and what whoever runs the tests ignores
    assert int(found["ignored"], 16) | theirs == theirs
    until(lambda: all(set(lab4.pids(n)) <= before[n] for n in lab4.nodes), "processes are left", 10)
    assert {node: set(lab4.listeners(node)) for node in lab4.nodes} == listening
    for code in (0, 1, 42):
        done = netdoctor(*argv(lab4, *REUSE, "--", "sh", "-c", f"exit {code}"), cwd=folder, **ITS_OWN)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert "gate: by .netdoctor/last.json" in done.stderr
    # `yes` ends by the signal of a pipe that nobody reads, which Python keeps from itself.
    piped = start(lab4, folder, "yes")
    assert piped.stdout is not None
    piped.stdout.close()
    assert piped.wait(30) == -signal.SIGPIPE
    trap = "trap 'echo got; exit 7' TERM INT; echo up; while :; do sleep 0.05; done"
    for number, script, code, said in (
        (signal.SIGTERM, trap, 7, "got\n"),
        (signal.SIGINT, trap, 7, "got\n"),
        (signal.SIGINT, "echo up; exec sleep 60", -signal.SIGINT, ""),
    ):
        process = start(lab4, folder, "sh", "-c", script)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (code, said), err


def start(lab: Lab, folder: Path, *command: str, options: Sequence[str] = REUSE) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*NETDOCTOR, *argv(lab, *options, "--", *command)],
        cwd=folder,
        text=True,
        env={**environment(), **ITS_OWN},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=as_in_a_terminal,  # noqa: PLW1509  no threads here
    )


def as_in_a_terminal() -> None:
    """Whoever runs the tests may ignore signals: nohup, a shell's background."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def test_an_interrupted_scan_starts_nothing(lab4: Lab, folder: Path) -> None:
    """Whatever may run in doubt: somebody wanted it to end."""
    before = running(lab4)
    put(lab4, ("node2 frozen",))
    allowed = ("--on-undecided", "run", "--on-crash", "run", "--fail-on", "never")
    process = start(lab4, folder, "echo", "ran", options=allowed)
    until(lambda: agents_run(lab4, before, "node0", "node1", "node3"), "agents on the nodes")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, ""), err
    assert "not started, interrupted" in err
