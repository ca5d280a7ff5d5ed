"""Hostile facts files: what four tasks of a job wrote, spoiled in bytes, fields and files, before the judge.

Whatever stands in the folder: a node that has not written a whole line of this job, just now and by itself,
is never found in order, nobody else suffers by it, and no text of a file steers a terminal.
"""

import functools
import gzip
import json
import os
import random
import tempfile
import time
import zlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from netdoctor import __version__
from netdoctor.compat import UTC
from netdoctor.engine import registry
from netdoctor.errors import InputError
from netdoctor.facts.base import Why
from netdoctor.facts.host import FILED
from netdoctor.inventory.task import Task
from netdoctor.report.model import Report
from netdoctor.report.output import render
from netdoctor.scanning import ScanRequest, assemble, prepare
from netdoctor.scanning.factfile import encode
from tests import clusters
from tests.fuzz import drawn
from tests.fuzz.report import TEXTS, assert_inert
from tests.hostile import HOSTILE

COUNT = 4
NODES = [clusters.name(i) for i in range(COUNT)]
# Groups of which every machine has something, and without which READY is not said.
NEEDED = ("host", "limits", "net", "gpu", "rdma", "software", "env", "resolve")
JOB = {"launcher": "slurm", "job": "slurm 12", "nodes": COUNT, "nodelist": ",".join(NODES)}


@functools.cache
def answers() -> dict[str, dict[str, Any]]:
    return {node: json.loads(facts) for node, facts in clusters.replies(COUNT, "healthy")}


def line(i: int, age_s: float = 1.0, facts: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """What node i writes. changes: fields of its task."""
    taken = datetime.fromtimestamp(time.time() - age_s, UTC).isoformat(timespec="milliseconds")
    own = Task(**{**JOB, "node_rank": i, **changes})
    session = {"interpreter": "/usr/bin/python3", "python": "3.12.1"}
    found = answers()[NODES[i]] if facts is None else facts
    return encode(
        NODES[i], version=__version__, collected_at=taken, task=own, job={}, session=session, facts=found
    )  # fmt: skip


def sealed(text: bytes, **fields: Any) -> bytes:
    """The line with other fields and a checksum that fits, as whoever writes on purpose has it."""
    data = {**json.loads(text), **fields}
    data.pop("crc")
    body = json.dumps(data, separators=(",", ":")).encode("utf-8", "surrogatepass")[:-1]
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


# What leaves nothing of a node that counts. Each takes the line that it would have written.


def torn(rng: random.Random, whole: bytes) -> bytes:
    a, b = sorted(rng.randrange(1, len(whole) - 2) for _ in range(2))
    other = line(next(i for i, node in enumerate(NODES) if f'"{node}"'.encode() not in whole[:80]))
    return rng.choice([b"", whole[:a], whole[a:], whole[:a] + other[a:], whole[:a] + whole[b + 1 :]])


def flipped(rng: random.Random, whole: bytes) -> bytes:
    """One byte is another; in the node's own name it would be somebody else's line."""
    at = rng.randrange(80, len(whole) - 2)
    return whole[:at] + bytes([whole[at] ^ rng.choice([1, 2, 16, 32, 128])]) + whole[at + 1 :]


def of_another_time(rng: random.Random, whole: bytes) -> bytes:
    age = rng.choice([3700, 90_000, -400, -90_000])
    taken = datetime.fromtimestamp(time.time() - age, UTC).isoformat(timespec="milliseconds")
    said = [taken, "yesterday", "", taken[:19], "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]
    return sealed(whole, taken=rng.choice(said))


def of_another_job(rng: random.Random, whole: bytes) -> bytes:
    task = json.loads(whole)["task"]
    # What is newest says which job is judged.
    taken = datetime.fromtimestamp(time.time() - 60, UTC).isoformat(timespec="milliseconds")
    job = rng.choice(["slurm 11", "slurm 1", "", "SLURM 12"])
    return sealed(whole, taken=taken, task={**task, "job": job})


def of_nobody(rng: random.Random, whole: bytes) -> bytes:
    names = ("", "-oProxyCommand=x", "cluster", "control", "job", "a/b", "n1->n2", "x" * 300)
    return sealed(whole, node=rng.choice([*HOSTILE.values(), *names]))


def without_facts(rng: random.Random, whole: bytes) -> bytes:
    facts = json.loads(whole)["facts"]
    why = rng.choice([*Why, "", "ready", None, 5])
    none = {"missing": {"why": why, "detail": rng.choice(TEXTS)}}
    empty: list[Any] = [none, none, {}, None, [], {"value": None}, 1]
    for group in rng.sample(NEEDED, rng.randrange(1, 4)):
        if rng.random() < 0.2:
            facts.pop(group)
        else:
            facts[group] = rng.choice(empty)
    return sealed(whole, facts=rng.choice([facts, facts, facts, {}, None, [], 7]))


def of_another_shape(rng: random.Random, whole: bytes) -> bytes:
    odd: list[Any] = [7, [7], "x" * 300, {"world": -1, "rank": "x"}, {"a": 1, "b": 2, "c": 3}]
    return sealed(whole, **{rng.choice(["version", "job", "session", "facts"]): rng.choice(odd)})


def of_a_word(rng: random.Random, whole: bytes) -> bytes:
    return rng.choice([b"null", b"{}", b"[]", b"[" * 90_000, b"\0" * 5000, b"9" * 5000, b"\xff\xfe"]) + b"\n"


SPOILS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    torn, flipped, of_another_time, of_another_job, of_nobody, without_facts, of_another_shape, of_a_word,
)  # fmt: skip


def harmless(rng: random.Random, whole: bytes) -> bytes:
    """The line in company: noise of a log, an older line, a compressed file."""
    text = rng.choice(TEXTS).encode("utf-8", "replace").replace(b"\n", b" ")
    before = rng.choice([b"", b"\0\0", b"rank 3: hello", b"\n ", text]) + b"\n"
    data = before + rng.choice([b"", b"[1,0]<stdout>:", b"3: "]) + whole
    return gzip.compress(data) if rng.random() < 0.3 else data


def put(rng: random.Random, folder: Path, i: int, data: bytes, *, spoiled: bool) -> None:
    """What is written of node i, in a file or in what is none."""
    path = folder / f"{NODES[i]}.facts.jsonl"
    kind = rng.randrange(12) if spoiled else 99
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(rng.choice(["/dev/zero", "/dev/tty", "nowhere", path.name, ".", "/proc/self/mem"]))
    elif kind == 2:
        path.mkdir()
    elif kind == 3:
        path.write_bytes(line(i))
        path.chmod(0o606)
    elif kind == 4 and os.geteuid() == 0:
        path.write_bytes(line(i))
        os.chown(path, 12345, -1)
    else:
        _quiet(path, data)


def _quiet(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)


def judged(words: tuple[str, ...]) -> Report:
    request = ScanRequest(facts=words, via=FILED, save=None, profile="quick")
    plan = prepare(request, known=registry.load(plugins=False))
    return assemble(plan, plan.scan().run(plan.transport), 1.0)


def case(rng: random.Random) -> None:
    """One folder, of which some nodes' files are spoiled."""
    with tempfile.TemporaryDirectory(prefix="netdoctor-fuzz-") as name:
        folder = Path(name)
        bad = {}
        named = rng.random() < 0.5  # only in files that are named is anything let stand before a line
        for i in range(COUNT):
            data = line(i)
            if i and rng.random() < 0.4:  # the first one is whole: there is a job to be judged
                bad[NODES[i]] = spoil = rng.choice(SPOILS)
                put(rng, folder, i, spoil(rng, data), spoiled=True)
            else:
                put(rng, folder, i, harmless(rng, data) if named else data, spoiled=False)
        try:
            report = judged(tuple(map(str, sorted(folder.iterdir()))) if named else (str(folder),))
        except InputError as error:
            assert_inert(str(error))
            return
        told = {node: spoil.__name__ for node, spoil in bad.items()}
        green = set(report.healthy_nodes)
        assert not green & set(bad), f"green without facts: {told}, {sorted(green)}"
        assert green >= set(NODES) - set(bad), f"others suffer: {told}, {sorted(green)}"
        assert (report.verdict.state == "ready") == (not bad), f"{report.verdict.state}: {told}"
        assert_inert(render(report, "text"))


def run(seed: int, seconds: float) -> int:
    """As `drawn`."""
    return drawn("facts", case, seed, seconds)
