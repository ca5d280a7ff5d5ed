"""Whether a path is one directory on all nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.positions import (
    MOUNT,
    NUMBERED,
    cause_at,
    identity,
    mount_text,
    requested_paths,
    served_by,
    unexpected_mounts,
)
from netdoctor.checks._shared.text import listing, quoted
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.facts.places import Place, PlaceFacts
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, PEERS, SUSPECTED, Cause, Finding, look, ok, seen, skip

NOT_MOUNTED = Cause("fs-not-mounted", "{where} is not mounted on {nodes}")
ANOTHER = Cause("fs-another", "{where} is another file system on {nodes}")


def other_mounts(
    path: str,
    there: Mapping[str, Place],
    hosts: Mapping[str, HostFacts],
    job: Job,
) -> Iterator[Finding]:
    """A finding for each node that has something else at a path than most."""
    said = majority({node: mount_text(place) for node, place in there.items()})
    usual = said.value or max(said.groups, key=lambda one: (not one.startswith("local"), one))
    pattern = there[said.groups[usual][0]]
    for node, place in there.items():
        # The server has its own export where the others have mounted it.
        if mount_text(place) == usual or served_by(pattern, _names(node, hosts, job)):
            continue
        # One server under two names: the same inode, changed in the same nanosecond.
        if (place.inode, place.changed) == (pattern.inode, pattern.changed) and place.network:
            continue
        missing = pattern.network and not place.network
        cause = cause_at(NOT_MOUNTED if missing else ANOTHER, path)
        if said.tie:
            cause = cause.but(confidence=SUSPECTED, settle_by="as many nodes have one as the other")
        yield (cause.fail if missing and not said.tie else cause.warn)(
            f"{path} is {mount_text(place)}; on {listing(said.groups[usual], 3)} it is {usual}",
            at=node,
            observed=mount_text(place),
            expected=PEERS(usual),
            seen=seen("/proc/self/mountinfo", f"{place.mount_point} {mount_text(place)}", "file"),
            fixes=look("compare what is mounted there", f"findmnt -T {quoted(path)}; grep -v ^# /etc/fstab"),
        )
    alike = {node: place.inode or "" for node, place in there.items() if mount_text(place) == usual}
    if pattern.network and pattern.fs_type in NUMBERED:
        for node, inode in majority(alike).minority.items():
            yield cause_at(ANOTHER, path).warn(
                f"{path} is {usual} here too, and another directory (inode {inode})",
                at=node,
                observed=f"inode {inode}",
                expected=PEERS("the same inode everywhere"),
                fixes=look("compare it with another node", f"stat {quoted(path)}; findmnt -T {quoted(path)}"),
            )


def _names(node: str, hosts: Mapping[str, HostFacts], job: Job) -> set[str]:
    host = hosts.get(node)
    own = {host.hostname, host.fqdn, host.ssh_server_address or ""} if host else set()
    return {node, job.data_addresses.get(node, ""), *own} - {""}


@check(
    profile="asked",
    required=False,
    source="https://www.kernel.org/doc/html/latest/filesystems/proc.html",
    expects={MOUNT: str},
)
def fs_shared(
    places: Mapping[str, PlaceFacts],
    hosts: Mapping[str, HostFacts],
    job: Job,
    expect: Expectations | None = None,
) -> Iterator[Finding]:
    """A path that is shared is shared by all nodes.

    Looks at:
        For every ``--path``: what is mounted there (server and export in /proc/self/mountinfo), the inode and
        when that last changed. Nothing is written, so it stays an inference: two names of one server look
        like two, and behind FUSE and 9p the numbers are the client's own. What cannot be told is said.

    Matters because:
        Where the mount is missing on one node, the same path is an empty local folder there: ranks read
        other data, and checkpoints of that node are nowhere to be found. Local copies on all nodes are no
        fault; ``path.same`` compares what is in them.

    Fix:
        Mount it as on the other nodes, and write that into /etc/fstab or the automounter's map.
    """
    yield from unexpected_mounts(places, expect)
    if not job.paths:
        yield skip("no --path was given")
        return
    seen_by = {
        path: {node: place for node, place in nodes.items() if place.error is None}
        for path, nodes in requested_paths(places).items()
    }
    if not any(len(there) > 1 for there in seen_by.values()):
        yield skip("not on two nodes: nothing to compare with")
    words = []
    for path, there in seen_by.items():
        known = {node: identity(place, node, hosts.get(node)) for node, place in there.items()}
        spread = majority(known)
        if len(there) < 2:
            continue
        if spread.equal:
            words.append(f"{path} is one on {len(there)} nodes: {mount_text(next(iter(there.values())))}")
        elif not any(place.network for place in there.values()):
            words.append(f"{path} is local: {len(spread.groups)} nodes have one of their own")
        else:
            other = list(other_mounts(path, there, hosts, job))
            yield from other
            if not other:
                kind = mount_text(next(place for place in there.values() if place.network))
                words.append(f"{path} may be one on {len(there)} nodes, {kind}: only writing would tell")
    if words:
        yield ok(CLUSTER, "; ".join(words))
