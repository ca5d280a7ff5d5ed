"""Faults between the client and a shell on the node."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time

from netdoctor.lab import guest, processes, service
from netdoctor.lab import node as nodes
from netdoctor.lab.fault import Fault, at_node, end_guest, keep, node_pid, refresh, require
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active
from netdoctor.lab.system import LabError

HTTP = "HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nConnection: close\r\n\r\n"


restart = at_node(service.restart)


def down(site: Site, active: Active) -> None:
    service.stop(site, active.node)
    active.undo["port"] = site.state.ssh_port


def not_ssh(site: Site, active: Active) -> None:
    service.stop(site, active.node)
    request = {
        "kind": "listen", "port": site.state.ssh_port, "name": "nginx",
        "title": "nginx: master process", "banner": HTTP,
    }  # fmt: skip
    if site.state.loopback:
        request["address"] = site.state.address(active.node)
    keep(site, active, guest.start(request, node_pid(site, active.node)))
    active.undo["port"] = site.state.ssh_port


def end_and_restart(site: Site, active: Active) -> None:
    end_guest(site, active)
    service.restart(site, active.node)


def members(site: Site, node: str) -> list[int]:
    """Host pids of everything that runs on the node."""
    if site.state.loopback:
        return [p.pid for p in service.family(site.state.processes[node])]
    return processes.in_pid_namespace_of(nodes.pid(site.state, node))


def freeze(site: Site, active: Active) -> None:
    stopped: set[int] = set()
    for _round in range(20):  # again, until nothing new was forked in between
        fresh = set(members(site, active.node)) - stopped
        if not fresh:
            break
        send(sorted(fresh), signal.SIGSTOP)
        stopped |= fresh
        time.sleep(0.01)
    active.undo["count"] = len(stopped)


def thaw(site: Site, active: Active) -> None:
    send(members(site, active.node), signal.SIGCONT)


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def slow_shell(site: Site, active: Active) -> None:
    require(active, "seconds", "[0-9.]+", " is not a number")
    refresh(site, active)


def ssh_full(site: Site, active: Active) -> None:
    service.restart(site, active.node)
    request = {
        "kind": "hold", "address": site.state.address(active.node),
        "port": site.state.ssh_port, "name": "ssh-scan",
    }  # fmt: skip
    keep(site, active, guest.start(request, node_pid(site, active.node)))


def login_shell(site: Site, active: Active) -> None:
    require(active, "path", r"/[\w./-]+", " is not the absolute path of a program")
    refresh(site, active)


def env(site: Site, active: Active) -> None:
    for name in active.params:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise LabError(f"{name!r} is not the name of a variable")
    service.restart(site, active.node)


# What keeps a node from logging in to the others; that it can be logged in to stays.
BETWEEN = {
    "no-key": "rm -f ~/.ssh/id_ed25519* && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519",
    "unknown": ": > ~/.ssh/known_hosts",
    "changed": (
        "ssh-keygen -q -t ed25519 -N '' -f /tmp/other && key=$(cut -d' ' -f1,2 /tmp/other.pub) && "
        'sed -i "s|^\\([^ ]*\\) .*|\\1 $key|" ~/.ssh/known_hosts && rm -f /tmp/other*'
    ),
    "port": "sed -i 's/Port .*/Port 22/' ~/.ssh/config",
    "no-client": "chmod 0644 /usr/bin/ssh",
}


def between(site: Site, active: Active) -> None:
    kind = require(active, "kind", "|".join(BETWEEN), f": write {', '.join(BETWEEN)}")
    nodes.do(site.state, active.node, ["sh", "-euc", BETWEEN[kind]])


def heal_between(site: Site, active: Active) -> None:
    state, node = site.state, active.node
    files = {path: text for path, _, text in nodes.between_nodes(state, site.folder)}
    nodes.do(state, node, ["sh", "-c", "rm -rf /root/.ssh/id_ed25519* && chmod 0755 /usr/bin/ssh"])
    nodes.write(state, node, dict(files), 0o600)
    for other in state.nodes:
        service.configure(site, other)


FAULTS = (
    Fault(
        "sshd-down", "the SSH server is not running", "{node}: sshd stopped; port {port} refuses connections",
        down, restart, loopback=True,
    ),
    Fault(
        "not-ssh", "another program listens on the SSH port",
        "{node}: a web server answers on port {port} instead of sshd",
        not_ssh, end_and_restart, loopback=True,
    ),
    Fault(
        "frozen", "every process of the node is stopped",
        "{node}: all {count} processes stopped (SIGSTOP); the kernel still answers",
        freeze, thaw, loopback=True,
    ),
    Fault(
        "wrong-key", "the client's key is not authorized",
        "{node}: authorized_keys holds somebody else's key only",
        at_node(service.configure), loopback=True,
    ),
    Fault(
        "host-key", "the server has another host key", "{node}: sshd restarted with another host key",
        restart, loopback=True,
    ),
    Fault(
        "ssh-full", "sshd turns away everybody (MaxStartups)",
        "{node}: sshd takes one unfinished login at a time, and somebody holds it",
        ssh_full, end_and_restart,
    ),
    Fault(
        "login-shell", "root's login shell is another program", "{node}: the login shell of root is {path}",
        login_shell, params={"path": "/usr/sbin/nologin"},
    ),
    Fault(
        "shell-noise", "the shell start-up file prints to stdout and stderr",
        "{node}: ~/.bashrc prints text and escape sequences to stdout and stderr", refresh,
    ),
    Fault(
        "slow-shell", "the shell start-up file takes its time", "{node}: ~/.bashrc sleeps {seconds} s",
        slow_shell, params={"seconds": "3"},
    ),
    Fault(
        "ssh-between", "the node cannot log in to the others",
        "{node}: it cannot log in to the other nodes ({kind})",
        between, heal_between, {"kind": "no-key"},
    ),
    Fault(
        "env", "sessions get these environment variables", "{node}: sessions get {values}",
        env, free=True, loopback=True,
    ),
)  # fmt: skip
