"""Rates of a file system: a slow node, a slow way to the storage, or storage that has no more to give."""

import re
from collections.abc import Iterator, Mapping, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.positions import cause_at
from netdoctor.checks._shared.text import listing, quoted
from netdoctor.facts.software import Job
from netdoctor.facts.storage import KINDS, StorageRate, StorageRates
from netdoctor.localise.storage import Pattern, pattern
from netdoctor.model import CLUSTER, LIKELY, PEERS, Cause, Finding, Measure, look, ok, run, skip, unknown

MACHINE = Cause("fs-slow-machine", "files are slow on {nodes}: in {where}, and on the local disk", LIKELY)
PATH = Cause("fs-slow-path", "{where} is slow on {nodes}, and the local disk is not", LIKELY)
EITHER = Cause("fs-slow-node", "{where} is slow on {nodes}", LIKELY)
SATURATED = Cause("fs-saturated", "{where} is slower for each node while all use it", LIKELY)
LEFT = Cause("fs-rate-left", "a folder of the rate test is left in {where} by {nodes}")
NAMES = re.compile(r"\.netdoctor-rate-[0-9a-f]{32}-\*")
WHY = {
    MACHINE: "its local disk is behind those of the others, too: the machine itself",
    PATH: "its local disk is not: the mount, the link, or what lies between it and the storage",
    EITHER: "whether the machine or its way to the storage, was not measured",
}
DOES = {"write": "writing with fsync", "read": "reading", "files": "small files"}
WORDS = {
    "room": "half of what is free there is less than 8 MiB a node",
    "empty": "the file is empty",
    "hangs": "nothing answered in 12 s",
}


def rate_text(kind: str, rate: float) -> str:
    """``350 MB/s``, ``1.25 GB/s``, ``900 files/s``."""
    if kind == "files":
        return f"{rate:.3g} files/s" if rate < 1000 else f"{rate:.0f} files/s"
    return f"{rate / 1e9:.3g} GB/s" if rate >= 1e9 else f"{rate / 1e6:.3g} MB/s"


@check(
    after=["fs.write"],
    profile="asked",
    cost="writes-file",
    required=False,
    source="https://man7.org/linux/man-pages/man2/open.2.html",
)
def fs_rate(storage: StorageRates, job: Job) -> Iterator[Finding]:
    """The path of ``--rate-test`` is as fast for every node as for its peers, alone and all at once.

    Looks at:
        In a folder: 16 MiB or less at a time written with fsync, that file read past the page cache
        (O_DIRECT; where the file system has none, the kernel is asked to drop the file first), and files of
        4 KiB created, looked at and removed. A file is only read. Each for 1.5 s on one node at a time (8
        nodes, spread over the list, if there are more) and for 3 s on all at once; up to 4 nodes that were
        behind are measured alone again. A node takes at most 256 MiB, and all together half of what is
        free. In one measurement it writes at most 2 GiB and reads at most 4 GiB. For comparison it does the
        same for half a second in its own /tmp, with at most 64 MiB. What was just written may come out of
        the server's memory; a large file that nobody has read shows the disks.

    Matters because:
        All ranks wait for the slowest one's checkpoint and its next batch. Slow alone and together: that
        node, or its way to the storage. Fine alone and slow together: the storage, or a link that all share.
        If it is slow for all, no peer shows it: compare the figures with what the job reads and writes.

    Fix:
        Compare mount options, link and load of the slow node with another's. If the storage has no more to
        give, stagger checkpoints, cache data on local disks, or add servers.
    """
    path = job.rate_test
    if not path:
        yield skip("no path was named: --rate-test PATH")
        return
    for node, why in storage.failed_nodes.items():
        yield unknown(node, f"the rate test did not end: {why}")
    errors = {one.node: one.error for one in storage.rates if one.error and one.path}
    errors |= {one.node: one.error for one in storage.paths if one.error}
    for node, error in errors.items():
        yield unknown(node, f"{path} was not measured to the end: {WORDS.get(error, error)}")
    for node, error in storage.left.items():
        yield cause_at(LEFT, path).warn(
            f"a folder {storage.names} could not be removed from {path}: {error}",
            at=node,
            observed=error,
            expected="no folder is left",
            fixes=run(
                "remove it", f"rm -r {quoted(path)}/{storage.names}" if NAMES.fullmatch(storage.names) else ""
            ),
        )
    mounts = majority({one.node: one.place for one in storage.paths if not one.error})
    mounted = next(iter(mounts.groups), "")
    for other, nodes in list(mounts.groups.items())[1:]:
        for node in nodes:
            yield unknown(node, f"{path} is {other} here, and {mounted} elsewhere: rates are not compared")
    rates = [one for one in storage.rates if one.node in mounts.groups.get(mounted, ())]
    patterns = {kind: pattern(_comparable(kind, path, rates)) for kind in KINDS}
    patterns = {kind: one for kind, one in patterns.items() if one.alone or one.together}
    if not patterns:
        return
    yield from _slow_nodes(path, patterns, rates)
    for kind, one in patterns.items():
        if one.saturated:
            yield _saturated(path, kind, one, mounts.groups[mounted][0])
    yield _figures(f"{path} ({mounted})", patterns, rates)


def _comparable(kind: str, path: str, rates: Sequence[StorageRate]) -> list[StorageRate]:
    """The measurements to compare: reads past the page cache, or those that were not, whichever is more."""
    found = [one for one in rates if (one.kind, one.path) == (kind, path)]
    past = 2 * sum(one.direct for one in found) > len(found)
    return [one for one in found if one.direct is past]


def _slow_nodes(
    path: str, patterns: Mapping[str, Pattern], rates: Sequence[StorageRate]
) -> Iterator[Finding]:
    """A finding for each node that is behind its peers alone, each time that it was measured."""
    local = {node for kind in KINDS for node in pattern(_comparable(kind, "", rates)).slow}
    known = {one.node for one in rates if not one.path and one.turn == "again" and not one.error}
    for node in sorted({node for one in patterns.values() for node in one.slow}):
        slow = [kind for kind, one in patterns.items() if node in one.slow]
        here = listing([f"{DOES[kind]} {rate_text(kind, patterns[kind].slow[node])}" for kind in slow])
        peers = listing([f"{DOES[kind]} {rate_text(kind, patterns[kind].alone)}" for kind in slow])
        fine = listing([DOES[kind] for kind in patterns if kind not in slow])
        cause = MACHINE if node in local else PATH if node in known else EITHER
        yield cause_at(cause, path).warn(
            f"{path}: alone {here}, other nodes {peers}{f', {fine} as others' if fine else ''}; {WHY[cause]}",
            at=node,
            observed=here,
            expected=PEERS(peers),
            fixes=look(
                "compare mount, load and link with another node's",
                f"findmnt -T {quoted(path)}; cat /proc/pressure/cpu /proc/pressure/io; ip -s link",
            ),
        )


def _saturated(path: str, kind: str, one: Pattern, client: str) -> Finding:
    total, alone = rate_text(kind, one.total), rate_text(kind, one.alone)
    return cause_at(SATURATED, path).warn(
        f"{path}: {DOES[kind]} {rate_text(kind, one.together)} a node while {one.count} do, {alone} alone; "
        f"{total} in all, as {one.total / one.alone:.1f} nodes alone: the storage, or a link that all share, "
        "gives no more",
        at=CLUSTER,
        observed=f"{total} for {one.count} nodes",
        expected=PEERS(f"{alone} for each, as alone"),
        fixes=look(
            "see which server and link it is, and look at their figures",
            f"findmnt -T {quoted(path)}",
            on=client,
        ),
    )


def _figures(what: str, patterns: Mapping[str, Pattern], rates: Sequence[StorageRate]) -> Finding:
    """All that was measured: what is slow for everybody has no peer to be compared with."""
    words, measures = [], {}
    for kind, one in patterns.items():
        text = f"{DOES[kind]} {rate_text(kind, one.alone)} alone"
        if one.count > 1:
            text += f", {rate_text(kind, one.total)} for {one.count} at once"
        words.append(text + (" (done too early to say how nodes share it)" if one.full else ""))
        unit, factor = ("files/s", 1.0) if kind == "files" else ("GB/s", 1e9)
        for turn, value in (("alone", one.alone), ("together", one.total)):
            measures[f"fs.rate.{kind}.{turn}"] = Measure(value=value / factor, unit=unit)
    if any(one.kind == "read" and not one.direct for one in rates if one.path):
        words.append("reads went through the page cache")
    return ok(CLUSTER, f"{what}: {'; '.join(words)}", measures=measures)
