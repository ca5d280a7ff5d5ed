"""Whether nodes share a folder, as files that they write there show."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._places import at
from netdoctor.checks._sharing import WRITING, failed_write, groups, late, unremoved
from netdoctor.checks._words import listing, quoted
from netdoctor.facts.sharing import SharedWrite, Sharing
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, CONFIG, PEERS, Cause, Finding, look, ok, seen, skip, unknown

APART = Cause("share-apart", "{where} is another folder on {nodes}", follows=("fs.shared",))
SPLIT = Cause("share-split", "the nodes do not share {where}", follows=("fs.shared",))


@check(profile="asked", cost="writes-file", required=False, source=WRITING)
def fs_write(sharing: Sharing, job: Job) -> Iterator[Finding]:
    """Every node writes to the folders of ``--write-test``, and what it writes there the others read.

    Looks at:
        A file of 4 KiB that each node makes in each of these folders (hidden, of a random name, never over
        another or through a link), brings to the disk, and removes. The files of the first three nodes are
        read by all, each node's by the one before it in the list. Where an NFS client may keep a folder in
        its cache, who sees nothing yet waits as long as that mount says (acdirmax, 60 s), 120 s at most.

    Matters because:
        Where one node has a folder of its own under the same name, a read-only mount, no quota left, or a
        user whom the server does not know, its checkpoints are lost or the job ends with the first of them.

    Fix:
        Mount it as on the other nodes; make room; let the user of the job write there.
    """
    if not job.write_test:
        yield skip("no folder was named: --write-test DIR")
        return
    for node, why in sharing.failed_nodes.items():
        yield unknown(node, f"writing was not tried to the end: {why}")
    for path in job.write_test:
        writes = [one for one in sharing.writes if one.path == path]
        yield from (failed_write(one) for one in writes if one.error)
        yield from _shared(path, [one for one in writes if one.step != "folder"], sharing)
    yield from unremoved(sharing)


def _shared(path: str, writes: list[SharedWrite], sharing: Sharing) -> Iterator[Finding]:
    reads = [one for one in sharing.reads if one.path == path]
    # Of whom nobody read anything, and who read nothing, it is not known which folder he sees.
    met = {node for one in reads for node in (one.reader, one.writer)}
    together = groups([one.node for one in writes if one.node in met], reads)
    mounted = f"findmnt -T {quoted(path)}; ls -lid {quoted(path)}"
    if len(together) < 2:
        yield from late(path, reads)
        if reads and not any([*(w.error for w in writes), *(r.error for r in reads)]):
            longest = max(one.after_s for one in reads)
            after = f", the last of them after {longest:.0f} s" if longest >= 1 else ""
            yield ok(CLUSTER, f"{path}: {len(met)} nodes wrote, and read what others wrote{after}")
        return
    most, others = together[0], together[1:]
    if len(most) == len(others[0]):
        words = "; ".join(listing(group, 3) for group in together[:4])
        yield at(SPLIT, path).fail(
            f"{path} is {len(together)} folders: {words}{'…' if len(together) > 4 else ''}",
            at=CLUSTER,
            observed=f"{len(together)} folders",
            expected=CONFIG("one folder, as --write-test says"),
            fixes=[look(f"compare it on {group[0]}", mounted, on=group[0]) for group in together[:2]],
        )
        return
    place = {one.node: one.place for one in writes}
    for node in (node for group in others for node in group):
        yield at(APART, path).fail(
            f"{path} ({place[node]}) has no file that others wrote; {listing(most, 3)} share theirs "
            f"({place[most[0]]})",
            at=node,
            observed=f"a folder without it, {place[node]}",
            expected=PEERS(f"the folder of {len(most)} nodes"),
            seen=seen(f"ls -a {path}", "No such file or directory", "command"),
            fixes=look("compare what is mounted there", mounted),
        )
