"""`netdoctor history`: which nodes fail again, how often, by which cause, since when."""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdoctor.cli.options import add_host_arguments, add_option, host_words
from netdoctor.compat import UTC
from netdoctor.errors import InputError
from netdoctor.report import LAST
from netdoctor.text import clean

if TYPE_CHECKING:
    from netdoctor.report.repeats import Failure, NodeHistory, Record

EVENTS_MAX = 64 << 20
EPILOG = """\
examples:
  netdoctor history                         nodes that failed in the scans of this folder
  netdoctor history hosts.txt -o json       those of a hosts file
  sacct -P -S now-90days -o JobID,State,FailedNode,End > jobs.txt
  netdoctor history --events jobs.txt       with jobs that a node ended
  kubectl get events -A -o json > events.json
  netdoctor history --events events.json    with what Kubernetes says of its nodes

exit codes:
  0 no node fails again   1 some do   2 bad input
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "history",
        help="nodes that fail again: how often, by which cause, since when, after which repair",
        description="Read the records of the scans in this folder. A node that failed three times within 30 "
        "days is marked: on a published trace 36 of 40 such nodes failed again within half a year.",
        epilog=EPILOG,
    )
    add_host_arguments(parser, "only these: a hosts file, or names")
    add_option(parser, "format")
    parser.add_argument(
        "--events", action="append", default=[], type=Path, metavar="FILE",
        help="of sacct -P with FailedNode, or kubectl get events -o json; repeatable",
    )  # fmt: skip
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="format (text)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0; 1 where a node fails again. Raises InputError."""
    from netdoctor.report import repeats

    every = repeats.records() or list(_from_reports())
    found = repeats.failures(every)
    for path in args.events:
        found += events(path)
    words = host_words(args)
    if words:
        from netdoctor.inventory import load

        names = {target.id for target in load(words, format=args.format or "auto").targets}
        found = [one for one in found if one.node in names]
    if not every and not args.events:
        raise InputError(f"no whole scan is saved in {LAST.parent}; scan first")
    now = time.time()
    nodes = repeats.by_node(found)
    again = repeats.repeaters(nodes, now)
    order = [*again, *sorted(nodes.keys() - set(again), key=lambda n: (-nodes[n].times(now), n))]
    rows = [_row(name, nodes[name], now, name in again) for name in order]
    if args.output == "json":
        schema = {"schema": "netdoctor.history/1", "scans": len(every), "nodes": rows}
        sys.stdout.write(json.dumps(schema, indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _table(rows, len(every))))
    return int(bool(again))


def _from_reports() -> "Iterator[Record]":
    """The records of the reports that are kept, where they were saved before there were records."""
    from netdoctor.report import history, repeats
    from netdoctor.report.save import load

    for one in history.reports():
        with contextlib.suppress(InputError):
            if (record := repeats.record_of(load(one.path))) is not None:
                yield record


def _row(name: str, history: "NodeHistory", now: float, again: bool) -> dict[str, Any]:
    from netdoctor.report import repeats

    failures = history.failures
    counts: dict[str, int] = {}
    for one in failures:
        counts[one.key] = counts.get(one.key, 0) + 1
    newest = failures[-1]
    ended = [one.ended for one in failures if one.ended is not None]
    repairs = [one.repair for one in failures if one.repair and one.ended is not None]
    return {
        "node": clean(name, 200),
        "failures": history.times(now),
        "in_30_days": history.times(now, repeats.WINDOW_S),
        "causes": {clean(key, 100): count for key, count in sorted(counts.items(), key=lambda kv: -kv[1])},
        "since": _day(failures[0].began),
        "last": _day(newest.began),
        "back": _day(max(ended)) if len(ended) == len(failures) else None,
        "after": clean(repairs[-1], 40) if repairs else None,
        "again": repeats.phrase(history, now) if again else None,
    }


def _table(rows: Sequence[dict[str, Any]], scans: int) -> Iterator[str]:
    """A line a node."""
    failing = sum(row["again"] is not None for row in rows)
    nodes = f"{len(rows)} node{'' if len(rows) == 1 else 's'}"
    yield f"{scans} scan{'' if scans == 1 else 's'}: {nodes} failed, {failing} again and again"
    table = [("node", "failures", "30 days", "causes", "since", "last", "back", "advised", "")]
    for row in rows:
        causes = ", ".join(f"{key} {count}" for key, count in list(row["causes"].items())[:3])
        more = f" +{len(row['causes']) - 3}" if len(row["causes"]) > 3 else ""
        table.append(
            (row["node"], str(row["failures"]), str(row["in_30_days"]), causes + more, row["since"],
             row["last"], row["back"] or "failing", row["after"] or "", row["again"] or "")
        )  # fmt: skip
    if rows:
        yield ""
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        for line in table:
            yield "  ".join(v.ljust(w) for v, w in zip(line, widths, strict=True)).rstrip()


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def events(path: Path) -> "list[Failure]":
    """The failures that a file of a scheduler tells of. Raises InputError."""
    from netdoctor.files import read_regular, reason

    try:
        data = read_regular(path, EVENTS_MAX + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"--events {path}: {reason(error)}") from None
    if len(data) > EVENTS_MAX:
        raise InputError(f"--events {path}: larger than {EVENTS_MAX >> 20} MiB; ask for fewer days")
    text = data.decode("utf-8", "replace")
    try:
        found = list(_kubernetes(text) if text.lstrip().startswith("{") else _sacct(text))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
        raise InputError(
            f"--events {path}: neither sacct -P with State, FailedNode and End, nor events of kubectl -o json"
        ) from None
    return found


def _sacct(text: str) -> "Iterator[Failure]":
    """``7.batch|NODE_FAIL|gpu03|2026-11-20T03:04:05``: jobs that the failure of a node ended.

    https://slurm.schedmd.com/sacct.html, FailedNode. Times are this machine's, as sacct prints them.
    """
    from netdoctor.report.repeats import Failure

    head, *lines = text.splitlines()
    names = head.split("|")
    state, node, end = (names.index(name) for name in ("State", "FailedNode", "End"))
    for line in lines:
        row = line.split("|")
        if row[state].startswith("NODE_FAIL") and row[node] not in ("", "None assigned", "Unknown"):
            at = datetime.fromisoformat(row[end]).astimezone().timestamp()
            yield Failure(row[node], "slurm-node-fail", at, at)


def _kubernetes(text: str) -> "Iterator[Failure]":
    """Events of kind Node that are warnings, and NodeNotReady, which is none to Kubernetes.

    https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
    """
    from netdoctor.compat import instant
    from netdoctor.report.repeats import Failure

    for item in json.loads(text)["items"]:
        subject = item["involvedObject"]
        if subject["kind"] == "Node" and (item.get("type") == "Warning" or item["reason"] == "NodeNotReady"):
            stamps = (item.get("lastTimestamp"), item.get("eventTime"), item["metadata"]["creationTimestamp"])
            at = instant(next(filter(None, stamps))).timestamp()
            yield Failure(subject["name"], str(item["reason"]), at, at)
