"""Faults between the client and a shell on the node."""

from __future__ import annotations

import re
import signal
import time

from netdoctor.lab import guest, processes, service
from netdoctor.lab import node as nodes
from netdoctor.lab.fault import Fault, end_guest, keep, node_pid
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active
from netdoctor.lab.system import LabError

HTTP = "HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nConnection: close\r\n\r\n"


def restart(site: Site, active: Active) -> None:
    service.restart(site, active.node)


def down(site: Site, active: Active) -> list[str]:
    service.stop(site, active.node)
    return [f"{active.node}: sshd stopped; port {site.state.ssh_port} refuses connections"]


def not_ssh(site: Site, active: Active) -> list[str]:
    service.stop(site, active.node)
    request = {
        "kind": "listen", "port": site.state.ssh_port, "name": "nginx",
        "title": "nginx: master process", "banner": HTTP,
    }  # fmt: skip
    if site.state.loopback:
        request["address"] = site.state.address(active.node)
    keep(site, active, guest.start(request, node_pid(site, active.node)))
    return [f"{active.node}: a web server answers on port {site.state.ssh_port} instead of sshd"]


def heal_not_ssh(site: Site, active: Active) -> None:
    end_guest(site, active)
    service.restart(site, active.node)


def members(site: Site, node: str) -> list[int]:
    """Host pids of everything that runs on the node."""
    if site.state.loopback:
        return [p.pid for p in service.family(site.state.processes[node])]
    return processes.in_pid_namespace_of(nodes.pid(site.state, node))


def freeze(site: Site, active: Active) -> list[str]:
    seen: set[int] = set()
    for _round in range(20):  # again, until nothing new was forked in between
        fresh = set(members(site, active.node)) - seen
        if not fresh:
            break
        service.freeze(sorted(fresh), signal.SIGSTOP)
        seen |= fresh
        time.sleep(0.01)
    return [f"{active.node}: all {len(seen)} processes stopped (SIGSTOP); the kernel still answers"]


def thaw(site: Site, active: Active) -> None:
    service.freeze(members(site, active.node), signal.SIGCONT)


def wrong_key(site: Site, active: Active) -> list[str]:
    service.configure(site, active.node)
    return [f"{active.node}: authorized_keys holds somebody else's key only"]


def configure(site: Site, active: Active) -> None:
    service.configure(site, active.node)


def host_key(site: Site, active: Active) -> list[str]:
    service.restart(site, active.node)
    return [f"{active.node}: sshd restarted with another host key"]


def shell(site: Site, active: Active) -> list[str]:
    if active.fault == "slow-shell" and not re.fullmatch(r"[0-9.]+", active.params["seconds"]):
        raise LabError(f"seconds={active.params['seconds']!r} is not a number")
    nodes.refresh(site.state, active.node)
    what = {
        "shell-noise": "~/.bashrc prints text and escape sequences to stdout and stderr",
        "slow-shell": f"~/.bashrc sleeps {active.params.get('seconds')} s",
    }
    return [f"{active.node}: {what[active.fault]}"]


def refresh(site: Site, active: Active) -> None:
    nodes.refresh(site.state, active.node)


def ssh_full(site: Site, active: Active) -> list[str]:
    service.restart(site, active.node)
    request = {
        "kind": "hold", "address": site.state.address(active.node),
        "port": site.state.ssh_port, "name": "ssh-scan",
    }  # fmt: skip
    keep(site, active, guest.start(request, node_pid(site, active.node)))
    return [f"{active.node}: sshd takes one unfinished login at a time, and somebody holds it"]


def heal_ssh_full(site: Site, active: Active) -> None:
    end_guest(site, active)
    service.restart(site, active.node)


def login_shell(site: Site, active: Active) -> list[str]:
    path = active.params["path"]
    if not re.fullmatch(r"/[\w./-]+", path):
        raise LabError(f"path={path!r} is not the absolute path of a program")
    nodes.refresh(site.state, active.node)
    return [f"{active.node}: the login shell of root is {path}"]


def env(site: Site, active: Active) -> list[str]:
    for name in active.params:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise LabError(f"{name!r} is not the name of a variable")
    service.restart(site, active.node)
    words = " ".join(f"{k}={v}" for k, v in active.params.items())
    return [f"{active.node}: sessions get {words}"]


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


def between(site: Site, active: Active) -> list[str]:
    kind = active.params["kind"]
    if kind not in BETWEEN:
        raise LabError(f"kind={kind!r}: write {', '.join(BETWEEN)}")
    nodes.do(site.state, active.node, ["sh", "-euc", BETWEEN[kind]])
    return [f"{active.node}: it cannot log in to the other nodes ({kind})"]


def heal_between(site: Site, active: Active) -> None:
    state, node = site.state, active.node
    files = {path: text for path, _, text in nodes.between_nodes(state, site.folder)}
    nodes.do(state, node, ["sh", "-c", "rm -rf /root/.ssh/id_ed25519* && chmod 0755 /usr/bin/ssh"])
    nodes.write(state, node, dict(files), 0o600)
    for other in state.nodes:
        service.configure(site, other)


FAULTS = (
    Fault("sshd-down", "the SSH server is not running", down, restart, loopback=True),
    Fault("not-ssh", "another program listens on the SSH port", not_ssh, heal_not_ssh, loopback=True),
    Fault("frozen", "every process of the node is stopped", freeze, thaw, loopback=True),
    Fault("wrong-key", "the client's key is not authorized", wrong_key, configure, loopback=True),
    Fault("host-key", "the server has another host key", host_key, restart, loopback=True),
    Fault("ssh-full", "sshd turns away everybody (MaxStartups)", ssh_full, heal_ssh_full),
    Fault(
        "login-shell",
        "root's login shell is another program",
        login_shell,
        refresh,
        {"path": "/usr/sbin/nologin"},
    ),
    Fault("shell-noise", "the shell start-up file prints to stdout and stderr", shell, refresh),
    Fault("slow-shell", "the shell start-up file takes its time", shell, refresh, {"seconds": "3"}),
    Fault("ssh-between", "the node cannot log in to the others", between, heal_between, {"kind": "no-key"}),
    Fault("env", "sessions get these environment variables", env, restart, free=True, loopback=True),
)
