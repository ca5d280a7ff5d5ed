"""`netdoctor diff` and `netdoctor baseline`: a report beside earlier ones."""

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from netdoctor.cli.options import count
from netdoctor.errors import InputError
from netdoctor.report import LAST
from netdoctor.text import clean

if TYPE_CHECKING:
    from netdoctor.report.model import Report

DIFF_EPILOG = """\
examples:
  netdoctor diff                            the last scan against the one before it
  netdoctor diff good.json .netdoctor/last.json
  netdoctor diff good .netdoctor/last.json  against the runs of the baseline `good`
  netdoctor diff -o json | jq .causes.new

exit codes:
  0 the same or better   2 bad input
  1 worse: a new cause, a status, a rate or loss beyond its noise band
"""
BASELINE_EPILOG = """\
examples:
  netdoctor baseline save good              the last report becomes a run of the baseline `good`
  netdoctor baseline show good              its runs, what was known, how much values scatter
  netdoctor scan hosts.txt --baseline good  marks causes as new or known
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    diff = subparsers.add_parser(
        "diff",
        help="what got worse, what was fixed, which values changed since an earlier report",
        epilog=DIFF_EPILOG,
    )
    diff.add_argument(
        "reports",
        nargs="*",
        metavar="[OLD] NEW",
        help=f"saved reports, or OLD as the name of a baseline (default: the one before NEW, and {LAST})",
    )
    diff.add_argument("-o", "--output", choices=("text", "json"), default="text", help="format (text)")
    diff.add_argument("--width", type=count, metavar="N", help="columns of the text")
    diff.set_defaults(run=run_diff)
    baseline = subparsers.add_parser(
        "baseline", help="named runs that later ones are compared with", epilog=BASELINE_EPILOG
    )
    verbs = baseline.add_subparsers(dest="verb", metavar="VERB", required=True)
    save = verbs.add_parser("save", help="add a report to a baseline")
    save.add_argument("name", metavar="NAME")
    save.add_argument(
        "report", nargs="?", type=Path, default=LAST, metavar="REPORT", help=f"(default: {LAST})"
    )
    verbs.add_parser("list", help="the baselines of this folder")
    for verb, text in (("show", "runs, known causes and noise of a baseline"), ("rm", "remove a baseline")):
        verbs.add_parser(verb, help=text).add_argument("name", metavar="NAME")
    for parser in verbs.choices.values():
        parser.set_defaults(run=run_baseline)


def run_diff(args: argparse.Namespace) -> int:
    """0 for the same or better, 1 for worse. Raises InputError."""
    from netdoctor.report import baselines, changes, history
    from netdoctor.report.diff import diff
    from netdoctor.report.output import RenderOptions, for_stdout, put
    from netdoctor.report.save import load

    if len(args.reports) > 2:
        raise InputError("two reports are compared: netdoctor diff [OLD] NEW")
    new = Path(args.reports[-1]) if args.reports else LAST
    now = load(new)
    if len(args.reports) == 2:
        old = baselines.resolve(Path(args.reports[0]))
    else:
        found = _earlier_trial(now) or history.before(now)
        if found is None:
            raise InputError(f"nothing is older than {new} in {LAST.parent / history.FOLDER}; name OLD, too")
        old = found
    before, *further = baselines.runs(old)
    if len({run.run.redacted for run in (now, before, *further)}) > 1:
        raise InputError("one of the reports is redacted and another is not: their nodes have other names")
    changed = diff(before, now, further)
    names = (str(old), str(new))
    runs = 1 + len(further)
    if args.output == "json":
        put(changes.as_json(changed, before, now, runs=runs, names=names))
    else:
        width = for_stdout(RenderOptions(width=args.width)).width or 100
        put(changes.text(changed, before, now, runs=runs, names=names, width=width))
    return int(changed.is_worse)


def _earlier_trial(now: "Report") -> Path | None:
    """The newest earlier report with a trial of a job, if this one has one."""
    from netdoctor.report import history
    from netdoctor.report.save import load

    earlier = [one.path for one in history.reports() if one.finished < history.ended(now)]
    for path in earlier if now.trial is not None else ():
        with suppress(InputError):
            if load(path).trial is not None:
                return path
    return None


def run_baseline(args: argparse.Namespace) -> int:
    """Raises InputError for a name or report that cannot be used."""
    try:
        {"save": _save, "list": _list, "show": _show, "rm": _remove}[args.verb](args)
    except OSError as error:
        if error.filename is None:
            raise
        raise InputError(f"{error.filename}: {error.strerror}") from None
    return 0


def _save(args: argparse.Namespace) -> None:
    from netdoctor.report import baselines, fmt
    from netdoctor.report.save import load

    report = load(args.report)
    if report.run.redacted or report.run.foreign:
        raise InputError(
            f"{args.report}: is {'redacted' if report.run.redacted else 'not yours'}; take your own"
        )
    runs = baselines.save(args.name, report)
    known = f", {fmt.number(len(report.causes), 'cause')} known" if report.causes else ""
    sys.stdout.write(f"{args.name}: {fmt.number(runs, 'run')}, the newest {_describe_run(report)}{known}\n")
    if runs < 3:
        sys.stdout.write(
            "three runs or more tell how much its values scatter; until then defaults are used\n"
        )


def _describe_run(report: "Report") -> str:
    from netdoctor.report import fmt, summary

    when = fmt.plain(report.run.finished[:16].replace("T", " "), 20)
    nodes = fmt.number(len(report.matrix.nodes), "node")
    return f"{when} {summary.verdict(report)}, {nodes}, profile {fmt.plain(report.run.profile, 20)}"


def _list(args: argparse.Namespace) -> None:
    from netdoctor.report import baselines, fmt
    from netdoctor.report.save import load

    for one in baselines.all_baselines():
        runs = fmt.number(len(one.files), "run")
        try:
            about_newest = f"the newest {_describe_run(load(one.files[0]))}"
        except InputError as error:
            about_newest = clean(str(error), 200)
        sys.stdout.write(f"{one.name:<20} {runs:>7}   {about_newest}\n")


def _show(args: argparse.Namespace) -> None:
    from netdoctor.report import bands, baselines, describe, fmt, summary

    found = baselines.find(args.name)
    runs = baselines.runs(baselines.FOLDER / found.name)
    for report, file in zip(runs, found.files, strict=True):
        sys.stdout.write(f"run    {_describe_run(report)}   {file}\n")
    for cause in {c.fingerprint: c for run in runs for c in run.causes}.values():
        sys.stdout.write(
            f"known  {summary.word(cause.status)} {describe.cause_check(cause)} {describe.title(cause)}\n"
        )
    learnt = bands.learn(runs)
    by_name: dict[tuple[str, str], list[bands.Band]] = {}
    for key, one in bands.values(runs[0]).items():
        if key in learnt and learnt[key].half:
            # The sizes of an all-reduce are one line.
            by_name.setdefault((key[0].rstrip("0123456789").rstrip("."), one.unit), []).append(learnt[key])
    for (name, unit), values in by_name.items():
        noise = f"{fmt.number(len(values), 'value')}, +/- {fmt.plain(bands.noise(values, unit), 40)}"
        sys.stdout.write(f"noise  {fmt.plain(name, 60):<24} {noise}\n")
    if len(runs) < 2:
        sys.stdout.write("noise  defaults, as one run does not tell: rates 20 %, loss 0.5 %, times half\n")


def _remove(args: argparse.Namespace) -> None:
    from netdoctor.report import baselines, fmt

    sys.stdout.write(f"{args.name}: {fmt.number(baselines.remove(args.name), 'run')} removed\n")
