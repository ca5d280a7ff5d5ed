"""The lab without root: several SSH servers of this user on addresses of the loopback."""

from __future__ import annotations

import getpass
import socket

from netdoctor.lab import requirements, service, sshd
from netdoctor.lab.service import Site
from netdoctor.lab.state import State
from netdoctor.lab.system import LabError

MOST_NODES = 200


def prepare(state: State) -> None:
    """Check what even this lab needs, before anything is made."""
    missing = requirements.missing_tools(("sshd", "ssh-keygen"))
    if missing:
        raise LabError("; ".join(missing))
    if state.hcas or state.gpus or state.data_net:
        raise LabError("a loopback lab has no networks, HCAs or GPUs of its own: nodes share this machine")
    if len(state.nodes) > MOST_NODES:
        raise LabError(f"a loopback lab has at most {MOST_NODES} nodes")
    if state.ssh_port < 1024:
        raise LabError("a loopback lab needs an --ssh-port of 1024 or more")
    state.loopback, state.leg, state.user = True, "", getpass.getuser()
    for node in state.nodes:
        with socket.socket() as probe:
            # Connections that have just ended hold nothing that a server could not take over.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((state.address(node), state.ssh_port))
            except OSError as error:
                raise LabError(
                    f"{state.address(node)} port {state.ssh_port}: {error.strerror}; "
                    "choose another --ssh-port"
                ) from None


def build(site: Site) -> None:
    state = site.state
    sshd.make_keys(
        [(site.folder / sshd.KEY, "netdoctor-lab")]
        + [(sshd.host_key(site.folder, node), node) for node in state.nodes]
    )
    for node in state.nodes:
        service.configure(site, node)
        state.processes[node] = service.start_loopback(site, node)
    for node in state.nodes:
        service.wait(state, node)
    sshd.write_client_files(site.folder, state, site.folder)
    state.ready = True
