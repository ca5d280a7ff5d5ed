"""Facts files put together: one line for each node of one job, or why there is none. Pure but for `read`."""

import errno
import glob
import itertools
import os
import re
import shlex
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import msgspec

from netdoctor import __version__
from netdoctor.compat import UTC, instant
from netdoctor.errors import InputError
from netdoctor.factlines import raw_lines
from netdoctor.facts.base import FACT_TYPES
from netdoctor.facts.host import Login
from netdoctor.files import nearest_file, open_shared, read_regular
from netdoctor.inventory import InventoryError, Target, expand
from netdoctor.inventory.names import host_of, is_valid_host, node_id
from netdoctor.inventory.nodeset import fold
from netdoctor.inventory.task import Task
from netdoctor.report.formats.json_ import NODES_MAX
from netdoctor.report.kept import as_facts as facts_kept
from netdoctor.report.save import load
from netdoctor.scanning.factfile import HEAD, MEETING, SUFFIX, Fault, Written, decode
from netdoctor.text import clean, listing

MAX_AGE_S = 3600.0
# Clocks that nobody sets are off by minutes; what is further ahead than that cannot be told from old.
AHEAD_S = 300.0
FILES_MAX = 200_000
# In all: ten thousand nodes are some 150 MB.
BYTES_MAX = 4 << 30
# What stands before the first line in the log of a task.
HEAD_MAX = 1 << 20
HEAD_BYTES = 4096
REPORT = b'"netdoctor.report/'
# The launcher of a line that stands in a saved report.
BY_REPORT = "report"
IN_FOLDERS = ".jsonl"
# Of a node that the files name.
SOURCE = "--facts"
FOLD_LIMIT = 60
NOTES_AT_MOST = 10
_MAGIC = re.compile(r"[*?\[]")


class _Row(msgspec.Struct):
    address: str = ""
    scope: str = ""


class _Net(msgspec.Struct):
    addresses: list[_Row] = []


class _Host(msgspec.Struct):
    hostname: str = ""


class _NetAnswer(msgspec.Struct):
    value: _Net = msgspec.field(default_factory=_Net)


class _HostAnswer(msgspec.Struct):
    value: _Host = msgspec.field(default_factory=_Host)


class _Names(msgspec.Struct):
    """Of a node's facts, what else it may be listed as."""

    net: _NetAnswer = msgspec.field(default_factory=_NetAnswer)
    host: _HostAnswer = msgspec.field(default_factory=_HostAnswer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which lines count."""

    now: float  # seconds since the epoch
    max_age_s: float = MAX_AGE_S  # older lines do not count
    nodes: int | None = None  # how many there have to be; None for as many as the launcher counts
    own_task: Task = field(default_factory=Task)  # the one that judges, if it is one
    job: str | None = None  # the one to judge, as its lines have it, or its number


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What there is of each node."""

    targets: tuple[Target, ...]  # in the order of ranks
    lines: Mapping[str, Written]  # by node id, the line that counts, or one with a fault
    job: Mapping[str, str]  # MASTER_ADDR and MASTER_PORT as the tasks have them
    notes: tuple[str, ...]  # what was left out, and what else a reader has to know
    run: str = ""  # the job that is judged, empty where nothing names it
    # When the oldest line that counts was written, in seconds since the epoch; None without one.
    began: float | None = None


def read(words: Sequence[str], uid: int | None = None) -> Iterator[Written]:
    """What the files say that `words` name: folders, patterns, files. Raises InputError for one that is none.

    uid: whose files are taken beside our own.
    """
    # A file that is found and named as well is taken as one that was named.
    paths: dict[str, bool] = {}
    for word in words:
        files = _files_of(word)
        for path in files:
            paths[path] = paths.get(path, True) and files != [word]
    if len(paths) > FILES_MAX:
        raise InputError(f"--facts: {len(paths)} files, {FILES_MAX} are read")
    left = BYTES_MAX
    for path, by_folder in paths.items():
        for found, size in _lines(path, uid, found=by_folder):
            left -= size
            if left < 0:
                raise InputError(f"--facts: more than {BYTES_MAX >> 30} GiB of facts in all")
            yield found


def is_filed(word: str) -> bool:
    """Whether a word stands for what tasks have written, and not for one saved report."""
    if word.endswith(IN_FOLDERS) or os.path.isdir(word) or _is_pattern(word):
        return True
    try:
        return HEAD in read_regular(word, HEAD_MAX)
    except OSError:
        return False


def _is_pattern(word: str) -> bool:
    return _MAGIC.search(word) is not None and not os.path.lexists(word)


def _files_of(word: str) -> list[str]:
    if os.path.isdir(word):
        try:
            with os.scandir(word) as entries:
                names = [entry.name for entry in entries]
        except OSError as error:
            raise InputError(f"--facts {word}: {error.strerror}") from None
        found = [name for name in names if name.endswith(IN_FOLDERS) and not name.startswith(".")]
        if not found:
            hint = "netdoctor facts -o FOLDER writes them"
            raise InputError(f"--facts {word}: no file in this folder ends in {IN_FOLDERS} ({hint})")
        return [os.path.join(word, name) for name in sorted(found)]
    if _is_pattern(word):
        found = sorted(glob.glob(word))
        if not found:
            raise InputError(f"--facts {word}: nothing is called so")
        return found
    if not os.path.lexists(word):
        raise InputError(f"--facts {word}: no such file or folder{nearest_file(word)}")
    return [word]


def _lines(path: str, uid: int | None, *, found: bool) -> Iterator[tuple[Written, int]]:
    """Each line of facts in a file, and its size; one that says what is wrong where there is none.

    found: nobody has named it. A link, or another name of the same file, could make it any file of the user's
    that holds a stranger's text, such as a log: no link is followed, and nothing stands before its lines.
    """
    name, node = clean(path, 200), _node_of(path)

    def fault(kind: Fault, detail: str) -> tuple[Written, int]:
        return Written(position=name, node=node, fault=kind, detail=detail), 0

    try:
        opened = open_shared(path, found=found)
    except (OSError, ValueError) as error:
        is_link = found and getattr(error, "errno", None) == errno.ELOOP
        why = getattr(error, "strerror", None) or str(error)
        yield fault(Fault.UNREAD, "it is a link, which is not followed; name the file" if is_link else why)
        return
    with opened.file as file:
        if opened.owner and opened.uid != uid:
            yield fault(Fault.FOREIGN, f"it belongs to {opened.owner}; --facts-uid {opened.uid} takes it")
            return
        if opened.mode & stat.S_IWOTH:
            yield fault(Fault.FOREIGN, f"everybody may write to it (mode {opened.mode:o})")
            return
        number, some = 0, False
        try:
            if REPORT in file.peek(HEAD_BYTES)[:HEAD_BYTES]:
                yield from _of_report(path, name)
                return
            for position, line in raw_lines(file, name):
                number += 1
                written = None if found and not line.startswith(HEAD) else decode(line, position)
                if written is not None:
                    some = True
                    # A line whose node cannot be told stands for the one that the file is called after.
                    yield (written if written.node else replace(written, node=node)), len(line)
        except OSError as error:
            yield fault(Fault.UNREAD, error.strerror or str(error))
        except InputError as error:
            yield fault(Fault.BROKEN, str(error).removeprefix(f"{name}:"))
        else:
            if not some:
                what = f"none of its {number} lines begins with {HEAD.decode()}1" if number else "it is empty"
                yield fault(Fault.BROKEN, what)


def _of_report(path: str, name: str) -> Iterator[tuple[Written, int]]:
    """What each node of a saved report answered when it was asked, as a line. What was measured between them
    stays behind: they are among others now."""
    try:
        report = load(Path(path))
        facts = facts_kept(report.facts).plain().get("node", {})
        # Some of it was measured when that scan began, also where a part was looked at again later.
        began = instant(report.run.started).timestamp()
    except (InputError, ValueError, OverflowError) as error:
        message = str(error).removeprefix(f"{path}: ")
        yield Written(position=name, node=_node_of(path), fault=Fault.BROKEN, detail=clean(message, 200)), 0
        return
    groups = [info.group for info in FACT_TYPES.values() if info.origin == "agent"]
    for node in facts.get("node", {}):
        collected = {group: facts[group][node] for group in groups if node in facts.get(group, {})}
        line = Written(
            position=name,
            node=node if host_of(node) else "",
            version=clean(report.tool.version, 40),
            written=began,
            task=Task(launcher=BY_REPORT),
            facts=msgspec.json.encode(collected),
        )
        session = facts.get("session", {}).get(node)
        reached = isinstance(session, dict) and (session.get("value") or {}).get("outcome") == Login.OK
        if report.run.foreign is not None:
            line = replace(line, fault=Fault.FOREIGN, detail="it is a report of somebody else")
        elif not reached or not collected:
            line = replace(line, fault=Fault.UNREAD, detail="that scan did not reach it")
        yield line, len(line.facts)


def _node_of(path: str) -> str:
    """The node that a file in a folder of `netdoctor facts` is called after; empty where it is no name."""
    name = os.path.basename(path)
    stem = name.removesuffix(SUFFIX) if name.endswith(SUFFIX) else os.path.splitext(name)[0]
    return node_id(stem) if is_valid_host(stem) else ""


def pool_lines(found: Iterable[Written], listed: Sequence[Target], rules: Rules) -> Pool:
    """One line for each node. listed: the nodes that the user names, none where the files shall say which.

    Who is listed, or in the job's node list, or counted by its launcher, and wrote nothing that counts, is a
    node all the same: its line has a fault.
    """
    lines = [_check_age(line, rules) for line in found]
    job = _choose_job([line for line in lines if line.fault is None], rules)
    lines = [_check_job(line, job) for line in lines]
    by_node: dict[str, list[Written]] = {}
    for number, line in enumerate(lines, 1):
        by_node.setdefault(line.node or f"unreadable{number}", []).append(line)
    notes: list[str] = _other_jobs(lines, job)
    known = {node: _choose_line(node, group, notes) for node, group in by_node.items()}
    good = {node: line for node, line in known.items() if line.fault is None}
    expected = list(listed) or _nodes_of_job(good.values())
    if listed or not _is_complete(good.values()):
        targets, chosen = _match_expected(expected, known, notes, by_hand=bool(listed))
    else:
        targets, chosen = [], dict(known)
        # What is left of another job, or of yesterday, is nobody's whom this one is missing.
        for node in [n for n, line in known.items() if line.fault in (Fault.OLD, Fault.OTHER_JOB)]:
            notes += _left_out(node, chosen.pop(node))
    unexpected = sorted(
        chosen.keys() - {target.id for target in targets}, key=lambda node: _order(node, chosen[node])
    )
    targets = [*targets, *(Target(id=node, host=host_of(node) or node, source=SOURCE) for node in unexpected)]
    if not listed:
        known_so_far = len(targets)
        absent = max(_missing_nodes(good.values(), known_so_far), (rules.nodes or 0) - known_so_far)
        if known_so_far + absent > NODES_MAX:
            counted = max(good.values(), key=lambda line: max(_counts(line.task)), default=None)
            says = f", as {counted.position} has it" if counted is not None else ""
            raise InputError(f"--facts: {known_so_far + absent} nodes{says}, {NODES_MAX} are judged")
        names = (name for n in itertools.count(1) if (name := f"absent{n}") not in chosen)
        for node in itertools.islice(names, max(0, absent)):
            targets.append(Target(id=node, host=node, source=SOURCE))
            detail = f"the job has {known_so_far + absent} nodes, and {known_so_far} are known by name"
            chosen[node] = Written(position=SOURCE, node=node, fault=Fault.ABSENT, detail=detail)
    slots = {node: line.task.local_world for node, line in chosen.items()}
    return Pool(
        targets=tuple(
            replace(target, order=order, slots=target.slots or slots.get(target.id))
            for order, target in enumerate(targets)
        ),
        lines=chosen,
        job=_endpoint_of(good.values(), notes),
        notes=tuple(_all_notes(notes, good)),
        run=clean(job, FOLD_LIMIT),
        began=min((line.written for line in chosen.values() if line.fault is None), default=None),
    )


def _check_age(line: Written, rules: Rules) -> Written:
    age = rules.now - line.written
    if line.fault is not None or -AHEAD_S <= age <= rules.max_age_s:
        return line
    if age > 0:
        text = f"written {_span(age)} ago, at most {_span(rules.max_age_s)} is taken (--facts-age)"
        return replace(line, fault=Fault.OLD, detail=text)
    return replace(line, fault=Fault.EARLY, detail=f"written {_span(-age)} from now, by that node's clock")


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _choose_job(good: Sequence[Written], rules: Rules) -> str:
    """The job that is judged: the one that was named, our own where it wrote something, else that of the
    newest line. Raises InputError where nothing counts of the one that was named."""
    good = [line for line in good if line.task.launcher != BY_REPORT] or good
    count = Counter(_job_of(line) for line in good)
    if rules.job is not None:
        found = [job for job in count if rules.job in (job, job.rpartition(" ")[2])]
        if len(found) == 1:
            return found[0]
        by_job = {name: [line for line in good if _job_of(line) == name] for name in count}
        jobs = listing([_describe_job(name, lines) for name, lines in by_job.items()], 8) or "none"
        why = "several jobs are called so" if found else "no line that counts is of it"
        raise InputError(f"--facts-job {clean(rules.job, FOLD_LIMIT)!r}: {why}; there are: {jobs}")
    if rules.own_task.job and rules.own_task.job in count:
        return rules.own_task.job
    newest = {_job_of(line): line.written for line in sorted(good, key=lambda line: line.written)}
    return max(count, key=lambda job: (newest[job], count[job]), default="")


def _job_of(line: Written) -> str:
    """The job of a line. A run of torchrun that nobody has named goes by the place where its agents meet."""
    if line.task.job or line.task.launcher != "torchrun":
        return line.task.job
    return ":".join(line.job[name] for name in MEETING if name in line.job)


def _check_job(line: Written, job: str) -> Written:
    if line.fault is not None or _job_of(line) == job or line.task.launcher == BY_REPORT:
        return line
    its, ours = (clean(name, 60) or "a job without a name" for name in (_job_of(line), job))
    return replace(line, fault=Fault.OTHER_JOB, detail=f"it is of {its}, what is judged of {ours}")


def _choose_line(node: str, lines: Sequence[Written], notes: list[str]) -> Written:
    """The line that counts of all that speak of one node. What is left out of them is noted."""
    good = sorted((line for line in lines if line.fault is None), key=lambda line: line.written)
    if not good:
        return max(lines, key=lambda line: (line.written, line.position))
    newest = good[-1]
    if len(good) > 1:
        all_have_jobs = all(line.task.job for line in good)
        machines = {_machine(line) for line in good}
        if not all_have_jobs or len(machines) > 1 or "" in machines:
            other = "and not all say of which machine" if "" in machines else "of different machines"
            why = other if all_have_jobs else "and nothing says which holds"
            positions = listing(line.position for line in good)
            return replace(newest, fault=Fault.TWICE, detail=f"{positions} are about it, {why}")
        notes.append(f"{node} has several lines of one job: the newest, {newest.position}, is taken")
    for line in lines:
        if line.fault is not None:
            notes += _left_out(node, line)
    return newest


def _machine(line: Written) -> str:
    """What tells one machine from another of the same name; empty where its facts do not say."""
    try:
        facts = msgspec.json.decode(line.facts)
        host = facts["host"]["value"]
        return f"{host['machine_id']} {host['boot_id']}" if host["boot_id"] else ""
    except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError, RecursionError):
        return ""


def _left_out(node: str, line: Written) -> list[str]:
    """The note on a line that does not count. Those of other jobs have one for all: _beside()."""
    return (
        [f"left out: {line.position} of {node}: {line.detail}"] if line.fault is not Fault.OTHER_JOB else []
    )


def _other_jobs(lines: Sequence[Written], job: str) -> list[str]:
    """Which of several jobs is judged, and how to have another; nothing where there is one."""
    others: dict[str, list[Written]] = {}
    for line in lines:
        if line.fault is Fault.OTHER_JOB:
            others.setdefault(_job_of(line), []).append(line)
    if not others:
        return []
    newest = sorted(others, key=lambda name: max(line.written for line in others[name]), reverse=True)
    ours = [line for line in lines if line.fault is None and _job_of(line) == job]
    left_out = listing([_describe_job(name, others[name]) for name in newest], 4)
    text = f"judged is {_describe_job(job, ours)}; left out: {left_out}"
    name = clean(newest[0], FOLD_LIMIT)
    return [f"{text}; --facts-job {shlex.quote(name)} judges that instead" if name else text]


def _describe_job(job: str, lines: Sequence[Written]) -> str:
    """``slurm 12 (3 lines, the last of 2026-11-22 08:01:12 UTC)``."""
    last = max((line.written for line in lines), default=0.0)
    when = datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    many = f"{len(lines)} line{'s' * (len(lines) != 1)}"
    return f"{clean(job, FOLD_LIMIT) or 'a job without a name'} ({many}, the last of {when})"


def _is_complete(good: Iterable[Written]) -> bool:
    """Whether those that wrote have all ranks: mpirun may have been told to take a part of the nodes."""
    tasks = [line.task for line in good]
    worlds = {task.world for task in tasks}
    if not tasks or None in worlds or len(worlds) > 1 or any(task.local_world is None for task in tasks):
        return False
    # More than all are of several runs, each with ranks of its own: who is missing they do not say.
    return sum(task.local_world or 0 for task in tasks) == max(world or 0 for world in worlds)


def _nodes_of_job(good: Iterable[Written]) -> list[Target]:
    """The nodes that the job's launcher names."""
    names: dict[str, None] = {}
    for text in dict.fromkeys(line.task.nodelist for line in good):
        try:
            names.update(dict.fromkeys(name for name in expand(text) if is_valid_host(name)) if text else {})
        except InventoryError:
            continue
    return [Target(id=node_id(name), host=name, source=SOURCE) for name in names]


def _match_expected(
    expected: Sequence[Target], known: Mapping[str, Written], notes: list[str], *, by_hand: bool
) -> tuple[list[Target], dict[str, Written]]:
    """(who is expected, the line of each, and of those who wrote beside them unless hosts were listed)."""
    short: dict[str, list[str]] = {}
    names = {name for target in expected for name in (target.id, target.host)}
    for node in known.keys() - names:
        short.setdefault(_bare(node), []).append(node)
    called: dict[str, list[str]] = {}
    for node in sorted(known.keys() - names) if by_hand else ():
        for other in _other_names(known[node]):
            called.setdefault(other, []).append(node)
    chosen: dict[str, Written] = {}
    used: set[str] = set()
    for target in expected:
        # gpu01 and gpu01.example.org are one, gpu01.a and gpu01.b are not.
        same_host = [n for n in short.get(_bare(target.host), []) if _bare(n) in (n, target.host)]
        exact = [n for n in (target.id, target.host) if n in known]
        found = exact[:1] or (same_host if len(same_host) == 1 else [])
        line = Written(position=SOURCE, node=target.id, fault=Fault.ABSENT, detail=_why_expected(target))
        if by_hand and not found:
            found = [node for node in called.get(target.host, ()) if node not in names]
            if len(found) > 1:  # as docker0 has on every node
                several = (
                    f"{fold(found, FOLD_LIMIT)} all say that they are {target.host}; list them by their names"
                )
                found, line = [], replace(line, fault=Fault.TWICE, detail=several)
        if found and found[0] not in used:  # nobody speaks for two
            used.add(found[0])
            line = known[found[0]]
        chosen[target.id] = line
    for name, line in known.items():
        if name in used:
            continue
        if by_hand:
            notes.append(f"left out: {line.position} of {name}, which is not listed")
        elif expected and line.fault is not None:
            notes += _left_out(name, line)
        else:
            chosen[name] = line
    return list(expected), chosen


def _other_names(line: Written) -> set[str]:
    """The addresses that a node's facts give its interfaces, and its host name."""
    try:
        names = msgspec.json.decode(line.facts, type=_Names)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return set()
    found = {one.address for one in names.net.value.addresses if one.scope == "global"}
    return {name for name in (*found, names.host.value.hostname) if name}


def _bare(name: str) -> str:
    """A host name without its domain; an address as it is."""
    return name.partition(".")[0] if name[:1].isalpha() and ":" not in name else name


def _why_expected(target: Target) -> str:
    line = f", line {target.line}" if target.line else ""
    source = "the job's node list" if target.source == SOURCE else target.source or "the list of hosts"
    return f"it stands in {source}{line}, and no file has facts of it"


def _order(node: str, line: Written) -> tuple[int, list[tuple[int, str]]]:
    """By rank; names without one by themselves, n2 before n10."""
    task = line.task
    rank = next((n for n in (task.node_rank, task.rank) if n is not None), 1 << 40)
    return rank, [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", node)]


def _missing_nodes(good: Collection[Written], known: int) -> int:
    """How many more nodes the job has than are known by name."""
    if _is_complete(good):
        return 0
    tasks = [line.task for line in good]
    # Runs without a name that nothing tells apart have each a rank 0, and so many nodes each.
    nameless = [t for t in tasks if not (t.job or t.rank is None) and (t.world or 0) > (t.local_world or 1)]
    runs = max(Counter(task.rank for task in nameless).values(), default=1)
    counted = runs * max((max(task.nodes or 0, (task.node_rank or 0) + 1) for task in tasks), default=0)
    world = runs * max((task.world or 0 for task in tasks), default=0)
    left = world - sum(task.local_world or 0 for task in tasks)
    if left > 0 and all(task.local_world for task in tasks):
        counted = max(counted, len(tasks) + -(-left // max(task.local_world or 1 for task in tasks)))
    return max(0, counted - known)


def _counts(task: Task) -> tuple[int, ...]:
    return tuple(n or 0 for n in (task.nodes, task.node_rank, task.world))


def _endpoint_of(good: Iterable[Written], notes: list[str]) -> dict[str, str]:
    """MASTER_ADDR and MASTER_PORT where all tasks that have one have the same."""
    values_by_name: dict[str, dict[str, list[str]]] = {}
    for line in good:
        for name, value in line.job.items():
            values_by_name.setdefault(name, {}).setdefault(value, []).append(line.node)
    for name, values in values_by_name.items():
        if len(values) > 1:
            parts = [f"{clean(value, 40)} on {fold(nodes, FOLD_LIMIT)}" for value, nodes in values.items()]
            notes.append(f"tasks have different {name}: {listing(parts)}; none is taken")
    return {name: next(iter(values)) for name, values in values_by_name.items() if len(values) == 1}


def _all_notes(notes: Sequence[str], good: Mapping[str, Written]) -> list[str]:
    others: dict[str, list[str]] = {}
    for node, line in good.items():
        if line.version != __version__:
            others.setdefault(line.version or "an unknown version", []).append(node)
    by_version = [
        f"facts of {fold(nodes, FOLD_LIMIT)} were written by netdoctor {version}, this is {__version__}: "
        "what one of them does not know is unknown"
        for version, nodes in sorted(others.items())[:NOTES_AT_MOST]
    ]
    more = [f"{len(notes) - NOTES_AT_MOST} more lines were left out"] if len(notes) > NOTES_AT_MOST else []
    return [*notes[:NOTES_AT_MOST], *more, *by_version]
