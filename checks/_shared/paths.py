"""The job's paths in checks: what was measured on which, and how a path is called."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from netdoctor.advice import is_tunnel_name
from netdoctor.checks._shared.addresses import device, holds
from netdoctor.checks._shared.env import export
from netdoctor.checks._shared.text import is_ifname, listing, title_text
from netdoctor.facts.net import AddressRow, Netdev, NetFacts
from netdoctor.facts.paths import BOOTSTRAP, RAIL, SOCKET, Path, Paths, Probe, path_of
from netdoctor.model import Cause, Finding, Fix, in_job
from netdoctor.rules.addresses import is_usable, repeated_addresses
from netdoctor.rules.nccl import candidates
from netdoctor.rules.variables import Environment, values
from netdoctor.rules.versions import Version

P = TypeVar("P", bound=Probe)


def by_path(probes: Iterable[P], paths: Paths | None) -> list[tuple[Path | None, list[P]]]:
    """The probes of each path, rails too, the main one (None) first."""
    find = path_of(paths)
    found: dict[str, tuple[Path | None, list[P]]] = {"": (None, [])}
    for path in paths.beside if paths else ():
        found[path.id] = (path, [])
    for probe in probes:
        path_found = find(probe)
        found[path_found.id if path_found else ""][1].append(probe)
    return [(path, some) for path, some in found.values() if some or path is None]


def path_text(paths: Sequence[Path | None]) -> str:
    """``, over eth1 (10.1.0.0/24: NCCL)``, for people; empty where the main path is among them."""
    labels = [path.label for path in paths if path is not None]
    return f", over {listing(labels)}" if len(labels) == len(paths) else ""


def addresses(node: str, paths: Iterable[Path | None], main: Mapping[str, str]) -> list[str]:
    """From where a node sends, and is dialled, on these paths. main: Job.data_addresses."""
    tables = (main if path is None else path.sources for path in paths)
    return list(dict.fromkeys(table[node] for table in tables if node in table))


def named_by_path(hint: Cause, paths: Sequence[Path | None]) -> Cause:
    """The cause with its paths in key and title; unchanged where the main path is among them."""
    where = path_text(paths)
    if not where or paths[0] is None:
        return hint
    kind = "rail" if paths[0].is_rail else "net"
    key = re.sub(r"\W+", "-", f"{hint.key}-{kind}{paths[0].id.removeprefix(RAIL)}")
    return replace(hint, key=key, title=hint.title + title_text(where))


def on_path(finding: Finding, path: Path | None) -> Finding:
    """The finding with its path named in summary and cause."""
    if path is None:
        return finding
    cause = finding.cause and named_by_path(finding.cause, (path,))
    return replace(finding, summary=finding.summary + path_text((path,)), cause=cause, path=path.id)


def about_path(finding: Finding, path: Path | None) -> Finding:
    """The finding with its path named in the summary alone.

    What a node has in common on all its paths is one cause, with the measures of the first.
    """
    if path is None:
        return finding
    return replace(finding, summary=finding.summary + path_text((path,)), path=path.id, measures=None)


def leave_out(left: Path, paths: Paths) -> tuple[Fix, ...]:
    """The other interfaces that NCCL takes, where it alone uses this path and has others."""
    in_use = {(use.node, use.address) for use in paths.uses if use.purpose.startswith(SOCKET)}
    names = dict.fromkeys(
        path.ifnames[node]
        for path in paths.paths
        for node, address in path.addresses.items()
        if path.id != left.id and (node, address) in in_use and node in path.ifnames
    )
    if left.users != ("NCCL",) or not names or not all(map(is_ifname, names)):
        return ()
    text = "if NCCL should not use that network, name the others"
    return (in_job(text, export("NCCL_SOCKET_IFNAME", f"={','.join(names)}"), persistent=True),)


def devices_on(path: Path, nets: Mapping[str, NetFacts]) -> dict[str, Netdev]:
    """The interface that each node is dialled on there, where it is known and has an MTU."""
    found = {node: device(nets[node], name) for node, name in path.ifnames.items() if node in nets}
    return {node: dev for node, dev in found.items() if dev is not None and dev.mtu > 0}


def further_devices(
    paths: Iterable[Path], nets: Mapping[str, NetFacts], main: Mapping[str, Netdev]
) -> Iterator[tuple[Path, dict[str, Netdev]]]:
    """The interfaces on these paths, each once: without those of the main one and of earlier ones."""
    done = {(node, dev.name) for node, dev in main.items()}
    for path in paths:
        devices = {n: dev for n, dev in devices_on(path, nets).items() if (n, dev.name) not in done}
        done |= {(n, dev.name) for n, dev in devices.items()}
        yield path, devices


# What has a speed of its own; a bridge or a tunnel says something about it, too.
LINKS = ("physical", "bond", "vlan", "ipoib")
# 25 beside 100 Gbit/s is a matter of taste; a management network is slower by far more.
FAR_APART = 5


@dataclass(frozen=True, slots=True)
class SocketRow:
    """An address that NCCL's socket transport advertises.

    is_repeated and is_link_local are never said of the one that NCCL's bootstrap takes, too: another check
    judges that.
    """

    row: AddressRow
    mbit_s: int  # 0 where the link does not say
    is_repeated: bool
    is_link_local: bool
    is_older: bool = False  # taken by releases before RUNNING_SINCE only, and this one's is not known

    def __str__(self) -> str:
        return f"{self.row.ifname} {self.row.address}"

    def behind(self, rows: Sequence["SocketRow"]) -> str:
        """How much slower it is than others of its node; empty where it is not, or nobody can tell."""
        fastest = max(one.mbit_s for one in rows)
        if is_tunnel_name(self.row.ifname) and not all(is_tunnel_name(one.row.ifname) for one in rows):
            return "an overlay, although there is a direct network"
        if 0 < self.mbit_s * FAR_APART <= fastest:
            return f"{self.mbit_s / 1000:g} Gbit/s, another {fastest / 1000:g}"
        return ""


def socket_rows(
    paths: Paths,
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, Environment],
    versions: Mapping[str, Version | None],
) -> dict[str, list[SocketRow]]:
    """By node, in NCCL's order; empty where its data does not go over sockets."""
    first = {(use.node, use.address) for use in paths.uses if use.purpose == BOOTSTRAP}
    repeated = repeated_addresses(nets)
    found: dict[str, list[SocketRow]] = {}
    for use in paths.uses:
        of_socket = use.purpose.startswith(SOCKET) and use.node in nets
        row = holds(nets[use.node], use.address) if of_socket else None
        if row is not None:
            dev, further = device(nets[use.node], row.ifname), (use.node, use.address) not in first
            speed = dev.speed_mbit_s or 0 if dev is not None and dev.kind in LINKS else 0
            local = further and not is_usable(row)
            same = further and not local and row.address in repeated
            found.setdefault(use.node, []).append(SocketRow(row, speed, same, local))
    for node, rows in found.items():
        for row in candidates(nets[node], values(envs[node]), (0,))[0] if versions[node] is None else ():
            if (
                is_usable(row)
                and row.address in repeated
                and all(row.ifname != one.row.ifname for one in rows)
            ):
                rows.append(SocketRow(row, 0, is_repeated=True, is_link_local=False, is_older=True))
    return found
