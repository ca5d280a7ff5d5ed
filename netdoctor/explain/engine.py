"""Logs in, an explanation out."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import BinaryIO

from netdoctor.explain.artifacts import Artifacts
from netdoctor.explain.collecting import Collector
from netdoctor.explain.judging import judge
from netdoctor.explain.knowledge import Knowledge, Role, load
from netdoctor.explain.matching import Found, Matcher, last_lines
from netdoctor.explain.model import Explanation, Source
from netdoctor.explain.nccl_info import summarise
from netdoctor.explain.nccl_lines import NcclReader
from netdoctor.explain.quoting import sanitized
from netdoctor.explain.reading import Log, blocks, logs
from netdoctor.explain.watchdogs import Watchdogs

ENDS_MAX = 1000  # logs whose last lines are kept


def explain(
    names: Sequence[str],
    knowledge: Knowledge | None = None,
    stdin: BinaryIO | None = None,
    ras: Mapping[str, str] = MappingProxyType({}),
) -> Explanation:
    """Read logs and say what went wrong. ras: answers of NCCL's RAS, by the name to quote them under.

    Raises InputError when a name names nothing, KnowledgeError.
    """
    return explain_logs(logs(names) if names or not ras else (), knowledge, stdin, ras)


def explain_logs(
    sources: Iterable[Log],
    knowledge: Knowledge | None = None,
    stdin: BinaryIO | None = None,
    ras: Mapping[str, str] = MappingProxyType({}),
) -> Explanation:
    """The same, for logs that were found already."""
    reader, artifacts = _Reader(knowledge), Artifacts()
    for log in sources:
        if not artifacts.take(log):
            reader.read(log.name, blocks(log, stdin))
        reader.sources.append(
            Source(
                name=sanitized(log.name, 300),
                lines=log.lines,
                size_bytes=log.size_bytes,
                remarks=tuple(sanitized(one) for one in log.remarks),
            )
        )
    for name, text in ras.items():
        artifacts.add_status(name, text)
        reader.add_source(sanitized(name, 300), text)
    for file, line in artifacts.lines():
        reader.read(file, [(1, line.encode("utf-8", "replace"))], nccl=False)
    return reader.explanation()


class _Reader:
    """Blocks of logs, to all that takes them in."""

    def __init__(self, knowledge: Knowledge | None) -> None:
        self._knowledge = knowledge or load()
        self._collector, self._nccl, self._watchdogs = Collector(), NcclReader(), Watchdogs()
        self._matcher = Matcher(self._knowledge.patterns)
        self.sources = self._collector.gathered.sources
        self._ends: list[tuple[str, list[tuple[int, str]]]] = []

    def read(self, name: str, numbered: Iterable[tuple[int, bytes]], nccl: bool = True) -> None:
        """Take in one log. nccl: whether NCCL may say something of itself in it."""
        self._collector.begin(name)
        self._nccl.begin(name)
        self._matcher.restart()
        ends: deque[tuple[int, bytes]] = deque(maxlen=2)
        for number, block in numbered:
            ends.append((number, block))
            if nccl:
                self._nccl.block(block)
                self._watchdogs.block(name, block, number)
            for found in self._matcher.block(block, number):
                self._collector.take(found)
        if len(self._ends) < ENDS_MAX:
            self._ends.append((name, last_lines(ends)))

    def add_source(self, name: str, text: str) -> None:
        self.sources.append(Source(name=name, lines=text.count("\n") + 1, size_bytes=len(text)))

    def explanation(self) -> Explanation:
        for file, number, line in self._watchdogs.lines(self._collector.gathered.world_size):
            self.read(file, [(number, line.encode())], nccl=False)
        found = judge(self._collector.gathered, self._knowledge)
        if not found.reasons:
            found = self._by_subject(found)
        return replace(found, nccl=summarise(self._nccl.log))

    def _by_subject(self, nothing: Explanation) -> Explanation:
        """What the last lines may be about, where no line is known."""
        subjects = [one for one in self._knowledge.patterns if one.subject]
        hits = self._collector.gathered.hits
        if any(hit.pattern.role is not Role.CONTEXT for hit in hits):
            return nothing  # what failed was tried again and worked
        matcher = Matcher(self._knowledge.patterns)
        for file, lines in self._ends:
            self._collector.begin(file)
            for number, text in lines:
                if any(one.patterns for one in matcher.block(text.encode(), number)):
                    continue  # known, and no failure
                pairs = tuple((one, "") for one in subjects if one.search(text))
                self._collector.take(Found(number, text, pairs))
        found = judge(self._collector.gathered, self._knowledge)
        return replace(found, ranks=nothing.ranks, echoes=(), is_guess=True) if found.reasons else nothing


def explain_text(files: dict[str, str], knowledge: Knowledge | None = None) -> Explanation:
    """Texts that are in memory, by the name that they shall be quoted under."""
    reader = _Reader(knowledge)
    for name, text in files.items():
        reader.read(name, [(1, text.encode("utf-8", "replace"))])
        reader.add_source(name, text)
    return reader.explanation()
