"""What is mounted at a path on one node, and not on another."""

from collections.abc import Iterator, Mapping

from netdoctor.checks._majority import majority
from netdoctor.checks._places import NUMBERED, at, of, served_by
from netdoctor.checks._words import listing, quoted
from netdoctor.facts.host import HostFacts
from netdoctor.facts.places import Place
from netdoctor.facts.software import Job
from netdoctor.model import PEERS, SUSPECTED, Cause, Finding, look, seen

NOT_MOUNTED = Cause("fs-not-mounted", "{where} is not mounted on {nodes}")
ANOTHER = Cause("fs-another", "{where} is another file system on {nodes}")


def other_mounts(
    path: str,
    there: Mapping[str, Place],
    hosts: Mapping[str, HostFacts],
    job: Job,
) -> Iterator[Finding]:
    """A finding for each node that has something else at a path than most."""
    said = majority({node: of(place) for node, place in there.items()})
    usual = said.value or max(said.groups, key=lambda one: (not one.startswith("local"), one))
    pattern = there[said.groups[usual][0]]
    for node, place in there.items():
        # The server has its own export where the others have mounted it.
        if of(place) == usual or served_by(pattern, _names(node, hosts, job)):
            continue
        # One server under two names: the same inode, changed in the same nanosecond.
        if (place.inode, place.changed) == (pattern.inode, pattern.changed) and place.network:
            continue
        missing = pattern.network and not place.network
        cause = at(NOT_MOUNTED if missing else ANOTHER, path)
        if said.tie:
            cause = cause.but(confidence=SUSPECTED, settle_by="as many nodes have one as the other")
        yield (cause.fail if missing and not said.tie else cause.warn)(
            f"{path} is {of(place)}; on {listing(said.groups[usual], 3)} it is {usual}",
            at=node,
            observed=of(place),
            expected=PEERS(usual),
            seen=seen("/proc/self/mountinfo", f"{place.mount_point} {of(place)}", "file"),
            fixes=look("compare what is mounted there", f"findmnt -T {quoted(path)}; grep -v ^# /etc/fstab"),
        )
    alike = {node: place.inode or "" for node, place in there.items() if of(place) == usual}
    if pattern.network and pattern.fs_type in NUMBERED:
        for node, inode in majority(alike).minority.items():
            yield at(ANOTHER, path).warn(
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
