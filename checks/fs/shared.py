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
    path: str, holders: Mapping[str, Place], hosts: Mapping[str, HostFacts], job: Job
) -> Iterator[Finding]:
    """A finding for each node that has something else at a path than most."""
    mount = majority({node: mount_text(location) for node, location in holders.items()})
    # Without a majority a share is taken for what was meant.
    typical = mount.value or max(mount.groups, key=lambda one: (not one.startswith("local"), one))
    pattern = holders[mount.groups[typical][0]]
    for node, location in holders.items():
        # The server has its own export where the others have mounted it.
        if mount_text(location) == typical or served_by(pattern, _names(node, hosts, job)):
            continue
        # One server under two names: the same inode, changed in the same nanosecond.
        if (location.inode, location.changed) == (pattern.inode, pattern.changed) and location.network:
            continue
        missing = pattern.network and not location.network
        cause = cause_at(NOT_MOUNTED if missing else ANOTHER, path)
        if mount.is_split:
            settle = f"choose one mount: the nodes differ, {mount.words}"
            cause = cause.but(confidence=SUSPECTED, settle_by=settle)
        yield (cause.fail if missing and not mount.is_split else cause.warn)(
            f"{path} is {mount_text(location)}; on {listing(mount.groups[typical], 3)} it is {typical}",
            at=node,
            observed=mount_text(location),
            expected=PEERS(typical),
            seen=seen("/proc/self/mountinfo", f"{location.mount_point} {mount_text(location)}", "file"),
            fixes=look("compare what is mounted there", f"findmnt -T {quoted(path)}; grep -v ^# /etc/fstab"),
        )
    groups = {
        node: location.inode or "" for node, location in holders.items() if mount_text(location) == typical
    }
    if pattern.network and pattern.fs_type in NUMBERED:
        inodes = majority(groups)
        for node, inode in inodes.minority.items():
            yield (
                cause_at(ANOTHER, path)
                .but(confidence=inodes.confidence)
                .warn(
                    f"{path} is {typical} here, too, but another directory (inode {inode})",
                    at=node,
                    observed=f"inode {inode}",
                    expected=PEERS("the same inode everywhere"),
                    fixes=look(
                        "compare it with another node", f"stat {quoted(path)}; findmnt -T {quoted(path)}"
                    ),
                )
            )


def _names(node: str, hosts: Mapping[str, HostFacts], job: Job) -> set[str]:
    host = hosts.get(node)
    names = {host.hostname, host.fqdn, host.ssh_server_address or ""} if host else set()
    return {node, job.data_addresses.get(node, ""), *names} - {""}


@check(
    profile="asked",
    required=False,
    source="https://www.kernel.org/doc/html/latest/filesystems/proc.html",
    expects={MOUNT: str},
)
def fs_shared(
    locations: Mapping[str, PlaceFacts],
    hosts: Mapping[str, HostFacts],
    job: Job,
    expect: Expectations | None = None,
) -> Iterator[Finding]:
    """A path that should be shared is the same file system on all nodes.

    Looks at:
        For every ``--path``: what is mounted there (server and export in /proc/self/mountinfo), the inode
        and when it last changed. Nothing is written, so the result is a conclusion and not a proof: two
        names of one server look like two servers, and with FUSE and 9p the inode numbers are the client's
        own. The report says where it cannot decide.

    Matters because:
        If the mount is missing on one node, the same path is an empty local folder there. Ranks read
        other data, and checkpoints of that node are lost. Local copies on all nodes are not a fault;
        ``path.same`` compares their contents.

    Fix:
        Mount it as on the other nodes, and add it to /etc/fstab or to the automounter's map.
    """
    yield from unexpected_mounts(locations, expect)
    if not job.paths:
        yield skip("no --path was given")
        return
    seen_by = {
        path: {node: location for node, location in nodes.items() if location.error is None}
        for path, nodes in requested_paths(locations).items()
    }
    if not any(len(holders) > 1 for holders in seen_by.values()):
        yield skip("not on two nodes: nothing to compare with")
    words = []
    for path, holders in seen_by.items():
        known = {node: identity(location, node, hosts.get(node)) for node, location in holders.items()}
        spread = majority(known)
        if len(holders) < 2:
            continue
        if spread.equal:
            words.append(
                f"{path} is shared by {len(holders)} nodes: {mount_text(next(iter(holders.values())))}"
            )
        elif not any(location.network for location in holders.values()):
            words.append(f"{path} is local: each of {len(spread.groups)} nodes has its own")
        else:
            other = list(other_mounts(path, holders, hosts, job))
            yield from other
            if not other:
                kind = mount_text(next(location for location in holders.values() if location.network))
                words.append(
                    f"{path} may be shared by {len(holders)} nodes, {kind}: only a write test can show it"
                )
    if words:
        yield ok(CLUSTER, "; ".join(words))
