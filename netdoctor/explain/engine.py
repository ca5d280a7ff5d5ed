"""Logs in, an explanation out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import BinaryIO

from netdoctor.explain.beside import Beside
from netdoctor.explain.collecting import Collector
from netdoctor.explain.judging import judge
from netdoctor.explain.knowledge import Knowledge, load
from netdoctor.explain.matching import Matcher
from netdoctor.explain.model import Explanation, Source
from netdoctor.explain.nccl_info import summarise
from netdoctor.explain.nccl_lines import NcclReader
from netdoctor.explain.quoting import shown
from netdoctor.explain.reading import Log, blocks, logs


def explain(
    names: Sequence[str],
    knowledge: Knowledge | None = None,
    stdin: BinaryIO | None = None,
    told: Mapping[str, str] = MappingProxyType({}),
) -> Explanation:
    """Read logs and say what went wrong. told: what NCCL's RAS said, by the name to quote it under.

    Raises InputError when a name names nothing, KnowledgeError.
    """
    return explain_logs(logs(names) if names or not told else (), knowledge, stdin, told)


def explain_logs(
    sources: Iterable[Log],
    knowledge: Knowledge | None = None,
    stdin: BinaryIO | None = None,
    told: Mapping[str, str] = MappingProxyType({}),
) -> Explanation:
    """The same, for logs that were found already."""
    knowledge = knowledge or load()
    collector, matcher, nccl = Collector(), Matcher(knowledge.patterns), NcclReader()
    beside = Beside()
    for log in sources:
        if not beside.take(log):
            collector.begin(log.name)
            nccl.begin(log.name)
            matcher.restart()
            for number, block in blocks(log, stdin):
                nccl.block(block)
                for found in matcher.block(block, number):
                    collector.take(found)
        collector.gathered.sources.append(
            Source(
                name=shown(log.name, 300),
                lines=log.lines,
                size_bytes=log.size_bytes,
                remarks=tuple(shown(one) for one in log.remarks),
            )
        )
    for name, text in told.items():
        beside.tell(name, text)
        lines = text.count("\n") + 1
        collector.gathered.sources.append(Source(name=shown(name, 300), lines=lines, size_bytes=len(text)))
    for file, line in beside.lines():
        collector.begin(file)
        matcher.restart()
        for found in matcher.block(line.encode("utf-8", "replace"), 1):
            collector.take(found)
    return replace(judge(collector.gathered, knowledge), nccl=summarise(nccl.seen))


def explain_text(files: dict[str, str], knowledge: Knowledge | None = None) -> Explanation:
    """Texts that are in memory, by the name that they shall be quoted under."""
    knowledge = knowledge or load()
    collector, matcher, nccl = Collector(), Matcher(knowledge.patterns), NcclReader()
    for name, text in files.items():
        collector.begin(name)
        nccl.begin(name)
        matcher.restart()
        data = text.encode("utf-8", "replace")
        nccl.block(data)
        for found in matcher.block(data, 1):
            collector.take(found)
        collector.gathered.sources.append(Source(name=name, lines=text.count("\n") + 1, size_bytes=len(text)))
    return replace(judge(collector.gathered, knowledge), nccl=summarise(nccl.seen))
