"""Whether nodes share a folder, as files that they write there show."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.positions import cause_at
from netdoctor.checks._shared.text import listing, quoted
from netdoctor.facts.places import HUNG
from netdoctor.facts.sharing import SharedRead, SharedWrite, Sharing
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, CONFIG, PEERS, Cause, Finding, Status, look, ok, run, seen, skip, unknown

WRITING = "https://man7.org/linux/man-pages/man5/nfs.5.html"  # "Directory entry caching", "root_squash"

READ_ONLY = Cause("share-read-only", "{where} is read-only on {nodes}")
FULL = Cause("share-full", "{where} has no room for {nodes} to write")
DENIED = Cause("share-denied", "{nodes} may not write to {where}")
MISSING = Cause("share-missing", "{where} is not a folder on {nodes}", follows=("fs.shared", "path.same"))
HANGS = Cause("share-hangs", "{where} does not answer on {nodes}", follows=("host.mounts",))
OTHER = Cause("share-not-written", "{nodes} cannot write to {where}")
NAMES = re.compile(r"\.netdoctor-write-[0-9a-f]{32}-\*")
LEFT = Cause("share-left", "a file of the write test is left in {where} by {nodes}")

_SPACE = "see what is full: space, inodes, or the user's quota"
# errno -> the cause, what is said of it, what to look at
_FAILED = {
    "EROFS": (READ_ONLY, "it is mounted read-only", "see how it is mounted", "findmnt -T {}"),
    "ENOSPC": (FULL, "no space is left", _SPACE, "df -h {0}; df -i {0}"),
    "EDQUOT": (FULL, "the quota is used up", _SPACE, "quota -s; df -h {0}; df -i {0}"),
    "EACCES": (DENIED, "permission denied", "see who may write there", "id; ls -ldn {}"),
    "EPERM": (DENIED, "operation not permitted", "see who may write there", "id; ls -ldn {0}; lsattr -d {0}"),
    "ENOENT": (MISSING, "it does not exist", "see what is mounted there", "findmnt -T {0}; ls -ld {0}"),
    "ENOTDIR": (MISSING, "it is not a folder", "see what is there", "ls -ld {}"),
    HUNG: (HANGS, "nothing answered in 8 s", "see what is mounted there", "grep -F {} /proc/self/mountinfo"),
}


class Unread(NamedTuple):
    """What is said where a node of the same folder does not read another's file."""

    cause: Cause
    status: Status
    words: str
    advice: str


_OWNER = Unread(
    Cause("share-not-readable", "{nodes} cannot read files of other nodes in {where}"), Status.FAIL,
    "is there, and reading it ends with {error}",
    "compare the user's number on the nodes; see whether the server maps root to nobody",
)  # fmt: skip
_LATE = Unread(
    Cause("share-late", "{nodes} see{s} files of other nodes in {where} late or never"), Status.WARN,
    "is not visible after {after:.0f} s", "see the mount's options: acdirmax, actimeo, lookupcache",
)  # fmt: skip
_BYTES = Unread(
    Cause("share-other-bytes", "{nodes} read{s} wrong data from files of other nodes in "
    "{where}"), Status.FAIL,
    "has other bytes here", "see what is mounted there: a cache in between, or two file systems",
)  # fmt: skip
_ODD = Unread(
    Cause("share-unread", "{nodes} cannot read files of other nodes in {where}"), Status.FAIL,
    "could not be read: {error}", "see what is mounted there",
)  # fmt: skip
_KINDS = {"EACCES": _OWNER, "EPERM": _OWNER, "ENOENT": _LATE, "ESTALE": _LATE, "other bytes": _BYTES}


def failed_write(one: SharedWrite) -> Finding:
    """The finding of a node that could not write."""
    cause, words, advice, shell = _FAILED.get(
        one.error, (OTHER, one.error, "see what is mounted there", "findmnt -T {}")
    )
    if cause is DENIED and one.uid == 0:
        words += ", to root: a server maps root to nobody unless the export has no_root_squash"
        advice = "let the job's own user write there, or check the export's options"
    return cause_at(cause, one.path).fail(
        f"{one.path} ({one.place}) cannot be written: {words}",
        at=one.node,
        observed=one.error,
        expected=CONFIG("a file of 4 KiB can be written, because --write-test names the folder"),
        fixes=look(advice, shell.format(quoted(one.path))),
    )


def late(path: str, reads: Sequence[SharedRead]) -> Iterator[Finding]:
    """Files of the same folder that some nodes could not read."""
    for one in reads:
        if one.error:
            kind = _KINDS.get(one.error, _ODD)
            yield cause_at(kind.cause, path).say(
                kind.status,
                f"{path}: what {one.writer} wrote {kind.words.format(error=one.error, after=one.after_s)}",
                at=one.reader,
                observed=one.error,
                expected=CONFIG("the same bytes"),
                fixes=look(kind.advice, f"findmnt -T {quoted(path)}; id; ls -ldn {quoted(path)}"),
            )


def groups(nodes: Sequence[str], reads: Sequence[SharedRead]) -> list[list[str]]:
    """Nodes that see one folder, the largest group first: who reads another's file shares it with that one.

    So does who sees it and may not read it.
    """
    group_of = {node: [node] for node in nodes}
    for one in reads:
        if one.error in ("", "EACCES", "EPERM") and one.reader in group_of and one.writer in group_of:
            small, large = sorted((group_of[one.reader], group_of[one.writer]), key=len)
            if small is not large:
                large += small
                group_of.update(dict.fromkeys(small, large))
    order = {node: i for i, node in enumerate(nodes)}
    every = {id(group): group for group in group_of.values()}.values()
    found = [sorted(group, key=order.__getitem__) for group in every]
    return sorted(found, key=lambda group: (-len(group), order[group[0]]))


def unremoved(sharing: Sharing) -> Iterator[Finding]:
    for node, paths in sharing.left.items():
        for path, error in paths.items():
            known = NAMES.fullmatch(sharing.names)
            yield cause_at(LEFT, path).warn(
                f"a file {sharing.names} could not be removed from {path}: {error}",
                at=node,
                observed=error,
                expected="no file is left",
                fixes=run("remove it", f"rm -f {quoted(path)}/{sharing.names}" if known else ""),
            )


ANOTHER = Cause("share-apart", "{where} is another folder on {nodes}", follows=("fs.shared",))
SPLIT = Cause("share-split", "the nodes do not share {where}", follows=("fs.shared",))


@check(profile="asked", cost="writes-file", required=False, source=WRITING)
def fs_write(sharing: Sharing, job: Job) -> Iterator[Finding]:
    """Every node can write to the folders of ``--write-test``, and the others read what it wrote.

    Looks at:
        Each node makes a file of 4 KiB in each of these folders (hidden, with a random name, never over
        another file or through a link), flushes it to disk, and removes it. All nodes read the files of
        the first three nodes; each other file is read by the node before it in the list. An NFS client
        may cache a folder: a node that sees nothing yet waits as long as its mount options say (acdirmax,
        60 s), at most 120 s.

    Matters because:
        Causes are a local folder of the same name, a read-only mount, a full quota, or a user that the
        server does not know. Then checkpoints of that node are lost, or the job ends at the first one.

    Fix:
        Mount it as on the other nodes, free space, or give the job's user permission to write.
    """
    if not job.write_test:
        yield skip("no folder was named: --write-test DIR")
        return
    for node, why in sharing.failed_nodes.items():
        yield unknown(node, f"the write test did not end: {why}")
    for path in job.write_test:
        writes = [one for one in sharing.writes if one.path == path]
        yield from (failed_write(one) for one in writes if one.error)
        yield from _shared(path, [one for one in writes if one.step != "folder"], sharing)
    yield from unremoved(sharing)


def _shared(path: str, writes: list[SharedWrite], sharing: Sharing) -> Iterator[Finding]:
    reads = [one for one in sharing.reads if one.path == path]
    # A node that read nothing, and was read by nobody, may see any folder.
    met = {node for one in reads for node in (one.reader, one.writer)}
    together = groups([one.node for one in writes if one.node in met], reads)
    mounted = f"findmnt -T {quoted(path)}; ls -lid {quoted(path)}"
    if len(together) < 2:
        yield from late(path, reads)
        if reads and not any([*(w.error for w in writes), *(r.error for r in reads)]):
            longest = max(one.after_s for one in reads)
            after = f", the last of them after {longest:.0f} s" if longest >= 1 else ""
            yield ok(CLUSTER, f"{path}: {len(met)} nodes wrote, and read the files of the others{after}")
        return
    most, others = together[0], together[1:]
    if 2 * len(most) <= sum(map(len, together)):
        words = "; ".join(listing(group, 3) for group in together[:4])
        yield cause_at(SPLIT, path).fail(
            f"{path} is {len(together)} folders: {words}{'…' if len(together) > 4 else ''}",
            at=CLUSTER,
            observed=f"{len(together)} folders",
            expected=CONFIG("one folder, because --write-test names it"),
            fixes=[look(f"compare it on {group[0]}", mounted, on=group[0]) for group in together[:2]],
        )
        return
    mount = {one.node: one.place for one in writes}
    for node in (node for group in others for node in group):
        yield cause_at(ANOTHER, path).fail(
            f"{path} ({mount[node]}) does not have the files of the others; {listing(most, 3)} share theirs "
            f"({mount[most[0]]})",
            at=node,
            observed=f"a folder without it, {mount[node]}",
            expected=PEERS(f"the folder of {len(most)} nodes"),
            seen=seen(f"the names in {path}", "the others' file is not among them"),
            fixes=look("compare what is mounted there", mounted),
        )
