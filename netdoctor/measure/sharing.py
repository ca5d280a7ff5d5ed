"""Folders that all nodes should share: each writes a small file there, others read it, and it is removed."""

from collections.abc import Sequence
from typing import Any

from netdoctor.facts.sharing import SharedRead, SharedWrite, Sharing
from netdoctor.measure.common import ask, read_as, reason, rows, token
from netdoctor.measure.declare import Context, experiment
from netdoctor.transport.base import Reply

# A hung mount costs a node 8 s for each folder; op_share has at most 8 of them. What NFS may keep in its
# cache is waited for up to 120 s, by those alone who do not see a file yet.
WRITING_S, READING_S, REMOVING_S = 70.0, 135.0, 70.0
# Whose files everybody reads, and beside them that of the next in the list: with one odd node among the first
# the others still meet, and a node alone is alone.
FIRST = 3
PREFIX = ".netdoctor-write-"


def plan(nodes: Sequence[str], writers: Sequence[str]) -> dict[str, list[str]]:
    """Whose files each of these nodes reads."""
    at = {node: i for i, node in enumerate(writers)}
    found = {}
    for node in nodes:
        after = writers[(at.get(node, -1) + 1) % len(writers)] if writers else node
        found[node] = [one for one in dict.fromkeys([*writers[:FIRST], after]) if one != node]
    return found


@experiment(bound_s=WRITING_S + READING_S + REMOVING_S, cost="writes-file")
def sharing(context: Context) -> Sharing:
    """Every node writes 4 KiB into the folders of --write-test, reads others' files, and removes its own."""
    folders = list(context.job.write_test)
    if not folders:
        return Sharing()
    nodes, word = context.participants.nodes, token()
    number = {node: i for i, node in enumerate(nodes)}
    failed: dict[str, str] = {}
    writes: list[SharedWrite] = []
    args = {node: {"paths": folders, "token": word, "number": number[node]} for node in nodes}
    for reply in ask(context.transport, "share", args, WRITING_S):
        found = _rows_as(reply, folders, SharedWrite, node=reply.node)
        writes += found
        _note(reply, len(found), len(folders), failed)
    writes.sort(key=lambda one: (folders.index(one.path), number[one.node]))
    reads: list[SharedRead] = []
    to_read, limits = _reads(writes, folders)
    args = {
        node: {
            "token": word,
            "reads": {path: [number[w] for w in writers] for path, writers in paths.items()},
            "cached_s": limits[node],
        }
        for node, paths in to_read.items()
    }
    for reply in ask(context.transport, "read_shared", args, READING_S):
        waiting = to_read[reply.node]
        count = 0
        for row in rows(reply):
            at = row.get("number")
            writer = nodes[at] if isinstance(at, int) and 0 <= at < len(nodes) else ""
            known = {**row, "writer": writer}
            for one in _rows_as(
                Reply(node=reply.node, result=[known]), folders, SharedRead, reader=reply.node
            ):
                if one.writer in waiting.get(one.path, ()):
                    waiting[one.path].remove(one.writer)
                    reads.append(one)
                    count += 1
        _note(reply, count, count + sum(map(len, waiting.values())), failed)
    reads.sort(key=lambda one: (folders.index(one.path), number[one.reader], number[one.writer]))
    left = _removed(context, word, number, failed)
    return Sharing(
        writes=tuple(writes), reads=tuple(reads), failed_nodes=failed, left=left, names=f"{PREFIX}{word}-*"
    )


def _reads(
    writes: Sequence[SharedWrite], folders: Sequence[str]
) -> tuple[dict[str, dict[str, list[str]]], dict[str, dict[str, float]]]:
    """Whose files a node reads, and how long it waits for them, by node and path."""
    to_read: dict[str, dict[str, list[str]]] = {}
    limits: dict[str, dict[str, float]] = {}
    for path in folders:
        here = [one for one in writes if one.path == path and one.step != "folder"]
        for node, writers in plan([w.node for w in here], [w.node for w in here if not w.error]).items():
            if writers:
                to_read.setdefault(node, {})[path] = writers
        for one in here:
            limits.setdefault(one.node, {})[path] = one.cached_s
    return to_read, limits


def _removed(
    context: Context, word: str, number: dict[str, int], failed: dict[str, str]
) -> dict[str, dict[str, str]]:
    """What could not be removed. The files of those who were lost meanwhile are removed by all others."""
    lost = [number[node] for node in failed]
    args = {node: {"token": word, "others": lost} for node in number}
    left: dict[str, dict[str, str]] = {}
    for reply in ask(context.transport, "remove_shared", args, REMOVING_S):
        found = read_as(reply.result, dict[str, str]) or {}
        errors = {path: error[:40] for path, error in found.items() if path in context.job.write_test}
        if errors and reply.node not in failed:
            left[reply.node] = errors
        if reply.missing is not None:
            failed.setdefault(reply.node, reason(reply))
    return left


def _rows_as(reply: Reply, folders: Sequence[str], cls: Any, **more: str) -> list[Any]:
    """Rows of a reply about folders that were asked for, as `cls`; each folder or pair once."""
    found: list[Any] = []
    for row in rows(reply):
        one = read_as({**row, **more}, cls)
        if one is not None and one.path in folders and one.path not in {other.path for other in found}:
            found.append(one)
    return found


def _note(reply: Reply, count: int, expected: int, failed: dict[str, str]) -> None:
    if count < expected:
        text = f"{expected - count} answers are missing"
        failed.setdefault(reply.node, text if reply.missing is None else reason(reply))
