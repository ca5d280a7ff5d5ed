"""Files that are no logs: flight records, answers of NCCL's RAS. Both become lines of a log."""

from collections.abc import Iterator

from netdoctor.explain import desync, flight, ras
from netdoctor.explain.reading import Log
from netdoctor.files import read_regular


class Artifacts:
    """Takes such files out of what is read; at the end, what is wrong as lines."""

    def __init__(self) -> None:
        self._records: list[flight.Record] = []
        self._ranks: dict[int, str] = {}
        self._left = flight.ENTRIES_IN_ALL
        self._statuses: list[tuple[str, ras.Status]] = []

    def take(self, log: Log) -> bool:
        """Whether this is one; `log.remarks` then has what is wrong with it."""
        data = _read(log.path, flight.HEAD) if log.path else b""
        if ras.is_status(data):
            content = _read(log.path or "", ras.SIZE_MAX)
            log.size_bytes, log.lines = len(content), content.count(b"\n") + 1
            self.add_status(log.name, content.decode("utf-8", "replace"))
            return True
        if not flight.is_record(data):
            return False
        most = max(flight.ENTRIES_MIN, min(flight.ENTRIES_MAX, self._left // 20))
        content = _read(log.path or "", flight.PICKLE_MAX + 1)
        log.size_bytes = len(content)
        try:
            record = flight.read(content, log.name, most)
        except flight.FlightError as error:
            log.remarks.append(str(error))
            return True
        twice = self._ranks.get(record.rank)
        if twice is None:
            self._records.append(record)
            self._ranks[record.rank] = record.file
            self._left -= len(record.operations)
        else:
            log.remarks.append(f"a second flight record of rank {record.rank}; {twice} was taken")
        return True

    def add_status(self, name: str, text: str) -> None:
        """Take in an answer of RAS."""
        self._statuses.append((name, ras.read(text)))

    def lines(self) -> Iterator[tuple[str, str]]:
        """(file, line) of what is wrong, the root of it first."""
        for file, _, text in desync.lines(self._records):
            yield file, text
        for name, status in self._statuses:
            for text in ras.lines(status):
                yield name, text


def _read(path: str, size: int) -> bytes:
    """The first bytes of a regular file; empty where it cannot be read, as the reader of logs will say."""
    try:
        return read_regular(path, size)[:size]
    except OSError:
        return b""
