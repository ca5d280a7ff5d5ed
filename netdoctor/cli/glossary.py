"""`netdoctor explain WORD…`: what a word means, with the reader's own values from a saved report."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from netdoctor import __version__
from netdoctor.explain import pages
from netdoctor.explain.near import Near
from netdoctor.report import LAST
from netdoctor.report.model import Report
from netdoctor.text import clean

UNKNOWN_WORD = 3


def run(words: Sequence[str], output: str, report: Path | None, width: int | None) -> int:
    """Explain words, or list them all. 0: all are known, 3: one is not. Raises InputError for the report."""
    from netdoctor.engine.registry import load_builtin

    glossary = pages.Glossary(load_builtin())
    columns = min(max(width or pages.WIDTH, 40), 120)
    if not words:
        listed = {"schema": pages.SCHEMA, "version": __version__, "groups": glossary.groups()}
        sys.stdout.write(_json(listed) if output == "json" else pages.contents(glossary, columns))
        return 0
    near, remark = _near(report)
    if remark:
        sys.stderr.write(f"netdoctor explain: {clean(remark, 500)}\n")
    entries = list(glossary.split(words))
    missing = {text: glossary.near(text) for text, found in entries if not found}
    if output == "json":
        known = [pages.data(word, near) for _, found in entries for word in found]
        unknown = [{"word": clean(text, 200), "near": close} for text, close in missing.items()]
        sys.stdout.write(
            _json({"schema": pages.SCHEMA, "version": __version__, "words": known, "unknown": unknown})
        )
    else:
        fence = output == "markdown"
        texts = [
            pages.text(found[0], glossary, near, columns)
            if len(found) == 1
            else pages.choice(text, found, columns)
            for text, found in entries
            if found
        ]
        sys.stdout.write("\n".join(f"```\n{one}```\n" if fence else one for one in texts))
    for text, close in missing.items():
        hint = f"; near it: {', '.join(close)}" if close else "; netdoctor explain lists all"
        sys.stderr.write(f"netdoctor explain: no word {clean(text, 80)!r} is known{hint}\n")
    return UNKNOWN_WORD if missing else 0


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _near(path: Path | None) -> tuple[Near | None, str]:
    """The report that was named, or the last one. That the latter cannot be read costs only its values."""
    from netdoctor.errors import InputError
    from netdoctor.report.save import load

    if path is not None:
        return of_report(load(path), str(path)), ""
    if not LAST.exists():
        return None, ""
    try:
        return of_report(load(LAST), str(LAST)), ""
    except InputError as error:
        return None, f"the last report is left out: {error}"


def of_report(report: Report, name: str) -> Near:
    """What pages need of a report."""
    from netdoctor.report.kept import as_facts

    nodes = report.matrix.nodes or tuple(target.id for target in report.targets)
    letters = {
        check: dict(zip(report.matrix.nodes, cells, strict=False))
        for check, cells in zip(report.matrix.checks, report.matrix.cells, strict=False)
    }
    gpus = {t.id: t.facts["gpus"] for t in report.targets if isinstance(t.facts.get("gpus"), int)}
    meeting = {
        variable: str(report.launch[key])
        for variable, key in (("MASTER_ADDR", "master_addr"), ("MASTER_PORT", "master_port"))
        if report.launch.get(key)
    }
    if "MASTER_ADDR" not in meeting and report.launch.get("master_node"):
        meeting["MASTER_ADDR"] = f"{report.launch['master_node']}, the first node"
    source = f"{clean(name, 80)} of {clean(report.run.finished, 40)}"
    facts = as_facts(report.facts).store()
    return Near(name=source, nodes=nodes, letters=letters, gpus=gpus, meeting=meeting, store=facts)
