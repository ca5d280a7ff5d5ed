"""Whether a path is one directory on all nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._majority import majority
from netdoctor.checks._mounts import other_mounts
from netdoctor.checks._places import MOUNT, as_typed, asked, identity, of
from netdoctor.facts.host import HostFacts
from netdoctor.facts.places import PlaceFacts
from netdoctor.facts.software import Job
from netdoctor.facts.wanted import Wanted
from netdoctor.model import CLUSTER, Finding, ok, skip


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
    expect: Wanted | None = None,
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
    yield from as_typed(places, expect)
    if not job.paths:
        yield skip("no --path was given")
        return
    seen_by = {
        path: {node: place for node, place in nodes.items() if place.error is None}
        for path, nodes in asked(places).items()
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
            words.append(f"{path} is one on {len(there)} nodes: {of(next(iter(there.values())))}")
        elif not any(place.network for place in there.values()):
            words.append(f"{path} is local: {len(spread.groups)} nodes have one of their own")
        else:
            other = list(other_mounts(path, there, hosts, job))
            yield from other
            if not other:
                kind = of(next(place for place in there.values() if place.network))
                words.append(f"{path} may be one on {len(there)} nodes, {kind}: only writing would tell")
    if words:
        yield ok(CLUSTER, "; ".join(words))
