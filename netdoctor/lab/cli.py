"""`netdoctor lab`: the command line of the lab."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netdoctor.lab.api import Lab


def add_parser(subparsers: Any) -> None:
    """Add ``lab`` and its commands; nothing of the lab is loaded before one of them runs."""
    parser = subparsers.add_parser(
        "lab",
        help="real throw-away nodes on this machine, and ways to break them",
        description="Real throw-away nodes on this machine: own network, files and SSH server each.",
    )
    commands = parser.add_subparsers(dest="lab_command", metavar="COMMAND", required=True)

    def command(
        name: str, work: Callable[[argparse.Namespace], int], help_text: str
    ) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = commands.add_parser(name, help=help_text)
        one.add_argument("--state-dir", type=Path, metavar="DIR", help="where this lab keeps its files")
        one.set_defaults(run=lambda args: _run(work, args))
        return one

    up = command("up", _up, "make N nodes")
    up.add_argument("count", type=int, metavar="N")
    up.add_argument("--prefix", default="node", help="names are PREFIX0, PREFIX1, … (node)")
    up.add_argument("--ssh-port", type=int, default=44222, metavar="PORT", help="(44222)")
    up.add_argument("--subnet", metavar="NET", help="such as 10.77.0.0/24 (the first that is free)")
    up.add_argument("--data-net", action="store_true", help="a second network on eth1")
    up.add_argument("--hcas", type=int, default=0, metavar="N", help="simulated HCAs per node")
    up.add_argument("--gpus", type=int, default=0, metavar="N", help="simulated GPUs per node")
    up.add_argument(
        "--link-layer", choices=("Ethernet", "InfiniBand"), default="Ethernet", help="of the HCAs"
    )
    up.add_argument(
        "--torch", action="store_true", help="the same stand-in torch on every node, to read versions of"
    )
    up.add_argument(
        "--share", action="append", default=[], metavar="DIR", help="a folder here that all nodes write to"
    )
    up.add_argument(
        "--loopback", action="store_true", help="without root: nodes share this machine's network"
    )

    broken = command("break", _break, "put a fault in force on a node")
    broken.add_argument("node", metavar="NODE")
    broken.add_argument("fault", metavar="FAULT", help="see `netdoctor lab faults`")
    broken.add_argument("params", nargs="*", metavar="NAME=VALUE")

    heal = command("heal", _heal, "take back faults")
    heal.add_argument("node", nargs="?", metavar="NODE")
    heal.add_argument("fault", nargs="?", metavar="FAULT")

    command("status", _status, "nodes, addresses, faults in force")
    hosts = command("hosts", _hosts, "write hosts file, ssh config, known_hosts and key")
    hosts.add_argument("folder", nargs="?", type=Path, metavar="DIR")
    command("down", _down, "end the lab and remove everything it made")
    command("faults", _faults, "list the faults and their parameters")


def _run(work: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    from netdoctor.lab.system import LabError

    try:
        return work(args)
    except LabError as error:
        print(f"netdoctor lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("netdoctor lab: interrupted", file=sys.stderr)
        return 130


def _load(args: argparse.Namespace) -> Lab:
    from netdoctor.lab import api

    return api.load(args.state_dir)


def _up(args: argparse.Namespace) -> int:
    from netdoctor.lab import api

    lab = api.up(
        args.count,
        prefix=args.prefix,
        ssh_port=args.ssh_port,
        state_dir=args.state_dir,
        data_net=args.data_net,
        share=args.share,
        hcas=args.hcas,
        gpus=args.gpus,
        subnet=args.subnet,
        loopback=args.loopback,
        link_layer=args.link_layer,
    )
    if args.torch:
        lab.install_torch()
    here = f" --state-dir {lab.state_dir}" if args.state_dir else ""
    first, last = lab.nodes[0], lab.nodes[-1]
    kind = "loopback lab, nodes share this machine" if args.loopback else "lab"
    print(f"{kind}: {first} to {last}, {lab.address(first)} to {lab.address(last)}")
    pretended = [f"{n} {what}" for n, what in ((args.hcas, "HCAs"), (args.gpus, "GPUs")) if n]
    if pretended:
        print(f"each with {' and '.join(pretended)}, simulated")
    print(f"  netdoctor scan --ssh-config {lab.ssh_config} {lab.hosts_file}")
    print(f"  ssh -F {lab.ssh_config} {first}")
    print(f"  netdoctor lab break{here} {last} {'sshd-down' if args.loopback else 'drop'}")
    print(f"  netdoctor lab down{here}")
    return 0


def _break(args: argparse.Namespace) -> int:
    from netdoctor.lab.system import LabError

    params = {}
    for word in args.params:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise LabError(f"{word!r}: write parameters as NAME=value")
        params[name] = value
    for line in _load(args).break_(args.node, args.fault, **params):
        print(line)
    return 0


def _heal(args: argparse.Namespace) -> int:
    done = _load(args).heal(args.node, args.fault)
    print("\n".join(done) if done else "nothing to repair")
    return 0


def _status(args: argparse.Namespace) -> int:
    lab = _load(args)
    wide = max(len(node) for node in lab.nodes)
    for one in lab.status():
        state = "running" if one.running else "DOWN"
        faults = "; ".join(one.faults) or "healthy"
        print(f"{one.node:{wide}}  {one.address:15}  {state:7}  {faults}")
    return 0


def _hosts(args: argparse.Namespace) -> int:
    lab = _load(args)
    hosts = lab.write_hosts(args.folder) if args.folder else lab.hosts_file
    print(f"netdoctor scan --ssh-config {hosts.parent / 'ssh_config'} {hosts}")
    return 0


def _down(args: argparse.Namespace) -> int:
    lab = _load(args)
    count = len(lab.nodes)
    lab.down()
    print(f"lab of {count} nodes is gone")
    return 0


def _faults(_args: argparse.Namespace) -> int:
    from netdoctor.lab import api
    from netdoctor.text import hung

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for fault in api.FAULTS.values():
        params = " ".join(f"{k}={v}" if " " not in v else f"'{k}={v}'" for k, v in fault.params.items())
        if fault.free:
            params = "NAME=value..."
        needs = {"hca": " (--hcas)", "gpu": " (--gpus)", "gcc": " (gcc)"}.get(fault.needs, "")
        rows = hung(f"{fault.summary}{needs}", f"{fault.name:18} ", width, " " * 19)
        if params:
            rows += hung(params, " " * 21, width)
        print("\n".join(rows))
    return 0
