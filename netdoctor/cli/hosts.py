"""`netdoctor hosts`: which hosts a list names, the same list for another program, and those that are good."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdoctor.cli.options import add_host_arguments, add_option, count, host_words
from netdoctor.cli.parser import Joined
from netdoctor.errors import InputError
from netdoctor.report import LAST
from netdoctor.text import clean

if TYPE_CHECKING:
    from netdoctor.inventory import Inventory, Target
    from netdoctor.inventory.topology import Topology
    from netdoctor.report.model import Report

EXIT_REFUSED = 1
# ibnetdiscover writes some 100 bytes a cable.
TOPOLOGY_MOST = 64 << 20
# Whoever leaves out more is more likely to have a broken control host than so many broken nodes.
FIFTH = 5

EPILOG = """\
examples:
  netdoctor hosts show inventory.ini              which hosts are in it, and how it was read
  netdoctor hosts show inventory.ini -n @gpu      those of a group
  netdoctor hosts convert hosts.txt --to deepspeed > hostfile
  netdoctor hosts convert --from-env --to openmpi --slots 8 > hostfile
  netdoctor hosts convert hosts.txt --topology ibnetdiscover.txt --to plain
  netdoctor hosts good --last --to deepspeed > hostfile
  sbatch --exclude="$(netdoctor hosts bad --to slurm)" job.sh

exit codes:
  0 done   2 bad input
  1 refused: too many would be left out, or none is good
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from netdoctor.inventory.readers import READERS
    from netdoctor.inventory.writers import WRITERS

    parser = subparsers.add_parser(
        "hosts",
        help="show and convert host lists; list usable or broken nodes",
        description="Read host lists of every kind, offline, and write them for another program.",
        epilog=EPILOG,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    show = verbs.add_parser("show", help="which hosts a list names, and what it says of each")
    convert = verbs.add_parser("convert", help="the same hosts as a list for another program")
    good = verbs.add_parser("good", help="the hosts that a report found usable")
    bad = verbs.add_parser("bad", help="the hosts that a report found broken")
    for one in (show, convert):
        add_host_arguments(
            one, f"a file of any kind ({', '.join(READERS)}), '-', or names; several are joined"
        )
        add_option(one, "ssh_config", "for --from-ssh-config")
        one.add_argument(
            "-n",
            "--node",
            action=Joined,
            metavar="EXPR",
            help="only these: gpu[01-04],gpu09, gpu*!gpu03, @group",
        )
        one.add_argument(
            "--topology",
            action="append",
            type=Path,
            metavar="FILE",
            help="set leaf=, rail= and the order: ibnetdiscover, LLDP, a report, Slurm, a cloud; repeatable",
        )
    _add_report_words(good, bad)
    for one in (show, convert, good, bad):
        add_option(one, "format")
    for one in (convert, good, bad):
        one.add_argument(
            "--to",
            choices=tuple(WRITERS),
            metavar="FORMAT",
            required=one is convert,
            default="plain",
            help=", ".join(WRITERS),
        )
        one.add_argument("--slots", type=count, metavar="N", help="of hosts that say neither slots nor GPUs")
    show.add_argument("-o", "--output", choices=("text", "json"), default="text", help="format (text)")
    parser.set_defaults(run=run)


def _add_report_words(good: argparse.ArgumentParser, bad: argparse.ArgumentParser) -> None:
    for one in (good, bad):
        add_host_arguments(
            one, f"a saved report (default: {LAST}), or host lists to filter by the last report"
        )
        one.add_argument("--last", action="store_true", help=f"by the last report, {LAST} (the default)")
        one.add_argument(
            "--yes-exclude",
            action="store_true",
            help="also if that leaves out more than a fifth of the hosts",
        )
    good.add_argument(
        "--without-repeaters",
        action="store_true",
        help="nor those that failed three times within 30 days (netdoctor history)",
    )


def run(args: argparse.Namespace) -> int:
    """0; 1 where too many would be left out. Raises InputError for a list or report that cannot be used."""
    if args.verb in ("good", "bad"):
        return _pick(args)
    topologies = _topologies(args.topology or ())
    inventory = _inventory(args, host_words(args), topologies)
    if args.verb == "show":
        _show(args, inventory, topologies)
    else:
        _tell(inventory.notes)
        _write(args, inventory.targets)
    return 0


def _topologies(paths: Sequence[Path]) -> "list[Topology]":
    from netdoctor import files
    from netdoctor.inventory import topology

    found = []
    for path in paths:
        try:
            text = files.read_regular(path, TOPOLOGY_MOST).decode("utf-8", "replace")
        except OSError as error:
            raise InputError(f"{clean(str(path), 200)}: {files.reason(error)}") from None
        found.append(topology.read(str(path), text))
    return found


def _inventory(
    args: argparse.Namespace, hosts: Sequence[str], topologies: "Sequence[Topology]" = ()
) -> "Inventory":
    from dataclasses import replace

    from netdoctor.inventory import load, restrict

    if not hosts:
        raise InputError("no hosts: name a file, hosts, --from-env or --from-ssh-config")
    inventory = load(hosts, format=args.format or "auto")
    if getattr(args, "node", None):
        chosen = set(restrict(inventory, args.node))
        inventory = replace(inventory, targets=tuple(t for t in inventory.targets if t.id in chosen))
    if topologies:
        targets, notes = _with_leaves(topologies, inventory.targets)
        inventory = replace(inventory, targets=targets, notes=(*inventory.notes, *notes))
    return inventory


def _with_leaves(
    found: "Sequence[Topology]", targets: "Sequence[Target]"
) -> "tuple[tuple[Target, ...], list[str]]":
    from netdoctor.inventory import topology
    from netdoctor.rules.switches import of_rail, rail_ports

    ordered, notes = topology.with_leaves(targets, topology.leaves(found), topology.rails(found))
    odd = [f"{one.node}: {one}" for one in rail_ports({t.id: of_rail(t.rail) for t in ordered if t.rail}).odd]
    return tuple(ordered), [*notes, *odd[:16]]


def _tell(lines: Sequence[str]) -> None:
    sys.stderr.write("".join(f"{clean(line, 1000)}\n" for line in lines))


def _write(args: argparse.Namespace, targets: "Sequence[Target]") -> None:
    from netdoctor.inventory.writers import write

    text, lost = write(targets, args.to, args.slots)
    _tell(lost)
    sys.stdout.write(text)


def _show(args: argparse.Namespace, inventory: "Inventory", topologies: "Sequence[Topology]") -> None:
    from netdoctor.inventory.writers import as_dicts

    if args.output == "json":
        import json

        from netdoctor.inventory.readers.clusters import HOSTS_SCHEMA

        found = {"hosts": as_dicts(inventory.targets), "notes": inventory.notes, "format": inventory.format}
        sys.stdout.write(
            json.dumps({"schema": HOSTS_SCHEMA, **found, "fold": inventory.fold()}, indent=1) + "\n"
        )
        return
    notes = inventory.notes or (f"{inventory.source}: {len(inventory.targets)} names",)
    sys.stdout.write("".join(f"{clean(line, 1000)}\n" for line in notes) + "\n")
    sys.stdout.write("".join(f"{line}\n" for line in _table(_rows(inventory.targets, bool(topologies)))))
    if topologies and (cables := _cables(inventory.targets, topologies)):
        sys.stdout.write("\n" + "".join(f"{line}\n" for line in _table(cables)))


def _rows(targets: "Sequence[Target]", has_map: bool) -> list[dict[str, Any]]:
    """A row a host. has_map: whether a map of the cables follows, which says more than rail=."""
    from netdoctor.inventory.writers import FIELDS

    return [
        {
            "rank": target.order,
            "host": target.id,
            "address": "" if target.host == target.id else target.host,
            **{key: getattr(target, key) for key in FIELDS[1:] if key != "rail" or not has_map},
            "groups": ",".join(target.groups),
            "from": f"{target.source}:{target.line}" if target.line else target.source,
        }
        for target in targets
    ]


def _cables(targets: "Sequence[Target]", topologies: "Sequence[Topology]") -> list[dict[str, Any]]:
    """A row for each cable of these hosts whose port is known."""
    from netdoctor.inventory.topology import cabling

    names = {name.lower() for target in targets for name in (target.id, target.host)}
    names |= {name.partition(".")[0] for name in names if not name[:1].isdigit()}
    return [
        {"host": host, "port": port, "switch": switch, "its port": at}
        for host, port, switch, at in cabling(topologies)
        if host.lower() in names or host.lower().partition(".")[0] in names
    ]


def _table(values: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """With the columns that say something in any row."""
    rows = [
        {key: "" if value is None else clean(str(value), 200) for key, value in row.items()} for row in values
    ]
    columns = [key for key in rows[0] if any(row[key] for row in rows)]
    rows.insert(0, {key: key for key in columns})
    widths = {key: max(len(row[key]) for row in rows) for key in columns}
    yield from ("  ".join(row[key].ljust(widths[key]) for key in columns).rstrip() for row in rows)


def _pick(args: argparse.Namespace) -> int:
    """Write the good or the bad hosts of a report, and say on stderr who is in neither list."""
    from netdoctor.report import fmt, summary
    from netdoctor.report.formats import hosts
    from netdoctor.report.save import load

    words_said = host_words(args)
    path = Path(words_said[0]) if len(words_said) == 1 and _is_report(words_said[0]) else LAST
    report = load(path)
    if report.run.redacted:
        raise InputError(f"{path}: a redacted report names no node that could be logged in to")
    part = report.verdict.part
    if part is not None and args.verb == "good":
        raise InputError(
            f"{path}: only {summary.part_text(part)} were looked at: no node is known to be usable"
        )
    listed = path != LAST or not words_said
    targets = hosts.targets(report) if listed else list(_inventory(args, words_said).targets)
    kinds = _kinds(report, [target.id for target in targets])
    when = fmt.plain(report.run.finished, 40)
    _tell([f"{path}, {when}: {', '.join(f'{len(ids)} {kind}' for kind, ids in kinds.items() if ids)}"])
    chosen = set(kinds[args.verb])
    if getattr(args, "without_repeaters", False):
        chosen -= _repeaters(chosen)
    left_out = len(targets) - len(chosen) if args.verb == "good" else len(chosen)
    others = [k for k in ("undecided", "not tested") if kinds[k]]
    if others:
        _tell([f"{kind}, so not {args.verb}: {_fold(kinds[kind])}" for kind in others])
    if args.verb == "good" and not chosen:
        _tell(["refused: no host is good"])
        return EXIT_REFUSED
    if left_out * FIFTH > len(targets) and not args.yes_exclude:
        share = f"{left_out} of {len(targets)} hosts"
        _tell([f"refused: {share} would be left out, more than a fifth; --yes-exclude does it"])
        return EXIT_REFUSED
    if chosen:
        _write(args, [target for target in targets if target.id in chosen])
    return 0


def _repeaters(names: set[str]) -> set[str]:
    """Those of the nodes that fail again, told on stderr."""
    import time

    from netdoctor.report import repeats

    now = time.time()
    nodes = repeats.by_node(repeats.failures(repeats.records()))
    found = [name for name in repeats.repeaters(nodes, now) if name in names]
    _tell([f"fails again, so left out: {name}, {repeats.phrase(nodes[name], now)}" for name in found])
    return set(found)


def _fold(names: Sequence[str]) -> str:
    from netdoctor.inventory import fold

    return fold(names, 200)


def _is_report(word: str) -> bool:
    """Whether a word names a file that says in its first lines that it is a report."""
    from netdoctor.files import read_regular

    try:
        return b'"netdoctor.report/' in read_regular(word, 4096)
    except (OSError, ValueError):
        return False


def _kinds(report: "Report", ids: Sequence[str]) -> dict[str, list[str]]:
    """The ids by what the report says of them; nobody whom it does not know is good."""
    kind_of = dict.fromkeys(report.healthy_nodes, "good")
    kind_of |= dict.fromkeys(report.undecided_nodes, "undecided")
    kind_of |= dict.fromkeys(report.unhealthy_nodes, "bad")
    kinds: dict[str, list[str]] = {"good": [], "bad": [], "undecided": [], "not tested": []}
    for name in ids:
        kinds[kind_of.get(name, "not tested")].append(name)
    return kinds
