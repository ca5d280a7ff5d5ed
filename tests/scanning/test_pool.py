"""Facts files: who wrote, what counts of it, and who is missing. No node is green that has not written."""

import json
import os
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from netdoctor import __version__, cli
from netdoctor.compat import UTC, instant
from netdoctor.engine import registry
from netdoctor.errors import InputError
from netdoctor.facts.host import FILED
from netdoctor.facts.software import TASKS
from netdoctor.inventory import Target
from netdoctor.inventory.names import RESERVED
from netdoctor.inventory.task import Task, node_name, task
from netdoctor.report.save import load, save
from netdoctor.scanning import ScanRequest, assemble, kept_request, prepare
from netdoctor.scanning.factfile import Fault, Written, decode, encode
from netdoctor.scanning.gate import not_ours_now
from netdoctor.scanning.pool import Pool, Rules, pool_lines, read
from tests import clusters
from tests.counting import steps

NOW = 1_790_000_000.0
PYTHON = {"interpreter": "/usr/bin/python3", "python": "3.12.1"}
SLURM = Task(launcher="slurm", job="slurm 12", nodes=3, nodelist="gpu[00000-00002]")


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def line(i: int | str, age: float = 5.0, own: Task = SLURM, now: float = NOW, **more: Any) -> bytes:
    """What node i of a healthy cluster writes. more: other arguments of encode()."""
    node = i if isinstance(i, str) else clusters.name(i)
    facts = more.pop("facts", {"host": {"value": {"machine_id": f"m{i}", "boot_id": "b"}}})
    said = {"version": __version__, "session": PYTHON, "job": {}}
    return encode(node, **{**said, "collected_at": stamp(now - age), "task": own, "facts": facts, **more})


def put(
    *lines: bytes,
    listed: str = "",
    nodes: int | None = None,
    own: Task | None = None,
    job: str | None = None,
) -> Pool:
    """These lines, judged by who is told of these nodes."""
    found = [one for n, text in enumerate(lines) if (one := decode(text, f"f{n}:1")) is not None]
    targets = [Target(id=name, host=name, source="hosts.txt") for name in listed.split()]
    return pool_lines(found, targets, Rules(now=NOW, nodes=nodes, own_task=own or Task(), job=job))


def said(pool: Pool) -> dict[str, str]:
    """Every node with what is wrong with its line; empty where it counts."""
    assert {target.id for target in pool.targets} == set(pool.lines)
    return {t.id.removeprefix("gpu0000"): str(pool.lines[t.id].fault or "") for t in pool.targets}


GOOD = {"0": "", "1": "", "2": ""}
ALONE = Task()
MPI = Task(launcher="openmpi", job="pmix 7", world=4, local_world=2, nodelist="gpu[00000-00007]")
LONE = Task(launcher="openmpi", job="pbs 9", world=1, local_world=1, nodelist="gpu[00000-00002]")
TORCH = Task(launcher="torchrun", world=8, local_rank=0, local_world=4, nodes=2)
OTHER = replace(SLURM, job="slurm 11")


def test_one_line_a_node_and_nobody_is_green_who_wrote_none() -> None:
    all3 = [line(0), line(1), line(2)]
    cut, other = line(1)[:-40], line(1).replace(b"s/1", b"s/2", 1)
    nobody = line(1, facts={"host": {"value": {"machine_id": None, "boot_id": None}}})
    absent = {"absent1": "absent", "absent2": "absent"}
    table: list[tuple[str, Pool, dict[str, str]]] = [
        ("whole", put(*all3), GOOD),
        ("in another order", put(*reversed(all3)), GOOD),
        ("two in a file that cat made", put(all3[0], all3[1] + b"", all3[2]), GOOD),
        ("one wrote nothing", put(all3[0], all3[2]), {**GOOD, "1": "absent"}),
        ("old", put(all3[0], all3[2], line(1, age=4000)), {**GOOD, "1": "old"}),
        ("in the future", put(all3[0], all3[2], line(1, age=-400)), {**GOOD, "1": "early"}),
        ("of clocks that differ by minutes", put(all3[0], all3[2], line(1, age=-200)), GOOD),
        ("cut off", put(all3[0], all3[2], cut), {**GOOD, "1": "broken"}),
        ("another format", put(all3[0], all3[2], other), {**GOOD, "1": "format"}),
        ("of the job before", put(all3[0], all3[2], line(1, own=OTHER)), {**GOOD, "1": "other_job"}),
        ("twice, the newer counts", put(*all3, line(1, age=3)), GOOD),
        ("twice, of machines of one name", put(*all3, line(1, facts={})), {**GOOD, "1": "twice"}),
        ("twice, of nobody knows what", put(all3[0], all3[2], nobody, nobody), {**GOOD, "1": "twice"}),
        ("twice, and one is old", put(*all3, line(1, age=4000)), GOOD),
        ("twice, one cut off", put(*all3, cut), GOOD),
        ("twice, jobs without a name", put(line(0, own=ALONE), line(0, 3, ALONE)), {"0": "twice"}),
        ("hosts say who", put(*all3, listed="gpu00000 gpu00009"), {"0": "", "9": "absent"}),
        ("hosts with a domain", put(all3[0], listed="gpu00000.a.org"), {"0.a.org": ""}),
        ("of another domain", put(line("n.a"), listed="n.b"), {"n.b": "absent"}),
        ("two hosts, one line", put(line("n"), listed="n.a n.b"), {"n.a": "", "n.b": "absent"}),
        ("addresses that begin alike", put(line("10.0.0.1"), listed="10.0.0.2"), {"10.0.0.2": "absent"}),
        ("so many nodes", put(line(0, own=ALONE), nodes=3), {"0": "", **absent}),
        ("no launcher", put(line(0, own=ALONE), line(1, own=ALONE)), {"0": "", "1": ""}),
        ("one run a node, and one is missing", put(line(0, own=LONE), line(1, own=LONE)), {
            "0": "", "1": "", "2": "absent",
        }),
        ("two runs that nobody has named, and one node is missing", put(*(
            line(i, own=replace(TORCH, rank=4 * n, node_rank=n)) for i, n in ((0, 0), (2, 0), (3, 1))
        )), {"0": "", "2": "", "3": "", "absent1": "absent"}),
        ("all of two runs that nobody has named", put(*(
            line(i, own=replace(TORCH, rank=4 * n, node_rank=n)) for i, n in enumerate((0, 0, 1, 1))
        )), {**GOOD, "3": ""}),
        ("halves of two runs, which meet elsewhere", put(*(
            line(i, 3 - i, replace(TORCH, rank=4 * i, node_rank=i), job={"MASTER_ADDR": f"gpu{i}"})
            for i in range(2)
        )), {"0": "other_job", "1": ""}),
        ("all ranks, on a part of the job", put(line(0, own=MPI), line(3, own=MPI)), {"0": "", "3": ""}),
        ("half of the ranks", put(line(0, own=replace(MPI, nodelist=""))), {"0": "", "absent1": "absent"}),
        (
            "a hole in the ranks",
            put(line(0, own=replace(ALONE, node_rank=0)), line(2, own=replace(ALONE, node_rank=2))),
            {"0": "", "2": "", "absent1": "absent"},
        ),
        ("yesterday's leftovers", put(*all3, line(7, age=90_000, own=OTHER)), GOOD),
        ("a folder that a larger job wrote to before", put(
            *(line(n, age=600, own=replace(OTHER, nodelist="gpu[00000-00009]")) for n in range(3, 10)), *all3
        ), GOOD),
        ("all of them old", put(line(0, 9999), line(1, 9999)), {"0": "old", "1": "old"}),
        ("judged inside of the smaller job", put(*all3[:2], line(2, own=OTHER), own=OTHER), {
            "0": "other_job", "1": "other_job", "2": "",
        }),
        ("in an order of ranks", put(*(line(n, own=replace(ALONE, rank=9 - n)) for n in range(9, -1, -1))), {
            **dict.fromkeys(map(str, range(9, -1, -1)), ""),
        }),
    ]  # fmt: skip
    for name, pool, wanted in table:
        assert said(pool) == wanted, name
        if name.startswith("in an order"):
            assert [t.id for t in pool.targets] == [clusters.name(n) for n in range(9, -1, -1)]


def test_hosts_that_are_listed_by_address_or_another_name_are_found_by_their_facts() -> None:
    def said_by(i: int, *more: str) -> bytes:
        rows = [{"address": a, "scope": "global"} for a in (f"10.0.0.{i}", "172.17.0.1", *more)]
        rows.append({"address": "127.0.0.1", "scope": "host"})
        own = {"hostname": f"rack{i}", "machine_id": f"m{i}", "boot_id": "b"}
        return line(i, facts={"net": {"value": {"addresses": rows}}, "host": {"value": own}})

    all3 = [said_by(0), said_by(1), said_by(2, "10.0.0.1")]
    assert said(put(*all3, listed="10.0.0.2 rack1 gpu00000")) == {"10.0.0.2": "", "rack1": "", "0": ""}
    pool = put(*all3, listed="10.0.0.0 10.0.0.1 172.17.0.1 127.0.0.1 rack1")
    assert said(pool) == {
        "10.0.0.0": "", "10.0.0.1": "twice", "172.17.0.1": "twice", "127.0.0.1": "absent", "rack1": "",
    }  # fmt: skip
    assert pool.lines["10.0.0.1"].detail == (
        "gpu[00001-00002] all say that they are 10.0.0.1; list them by their names"
    )
    # Nobody speaks for two, and what cannot be read speaks for nobody.
    assert said(put(*all3[:1], listed="rack0 10.0.0.0")) == {"rack0": "", "10.0.0.0": "absent"}
    assert said(put(line(0, facts={"net": 7}), listed="10.0.0.0")) == {"10.0.0.0": "absent"}


def test_what_is_left_out_is_told() -> None:
    pool = put(line(0), line(0, age=3), line(1, version="0.0.9"), line(2), line(2)[:-40], line(7, own=OTHER))
    assert pool.notes == (
        "judged is slurm 12 (4 lines, the last of 2026-09-21 14:13:17 UTC); left out: slurm 11 (1 line, the "
        "last of 2026-09-21 14:13:15 UTC); --facts-job 'slurm 11' judges that instead",
        "gpu00000 has several lines of one job: the newest, f1:1, is taken",
        pool.notes[2],
        f"facts of gpu00001 were written by netdoctor 0.0.9, this is {__version__}: "
        "what one of them does not know is unknown",
    )
    assert pool.notes[2].startswith("left out: f4:1 of gpu00002: ")
    assert pool.notes[2].endswith("; the line seems cut off")
    whole = line(2)
    behind_brace = put(line(0), whole, whole[: whole.index(b"}") + 1])
    assert behind_brace.notes[-1].endswith("; the line seems cut off")
    many = put(*(line(n, age=4000) for n in range(100)), *(line(n, 5) for n in range(100)))
    assert len(many.notes) == 11
    met = [line(n, job={"MASTER_ADDR": f"gpu0000{n // 2}", "MASTER_PORT": "29400"}) for n in range(3)]
    assert put(*met).job == {"MASTER_PORT": "29400"}
    differ = "different MASTER_ADDR: gpu00000 on gpu[00000-00001] and gpu00001 on gpu00002"
    assert differ in put(*met).notes[0]


def test_the_job_that_is_judged_can_be_named() -> None:
    lines = [line(0), line(1), line(5, own=OTHER, age=60), line(6, own=replace(OTHER, job="pbs 11"), age=50)]
    alone = replace(OTHER, nodes=1, nodelist="gpu00005")
    lines[2] = line(5, own=alone, age=60)
    found = put(*lines, job="slurm 11")
    assert ([target.id for target in found.targets], found.run) == (["gpu00005"], "slurm 11")
    assert found.notes[0].startswith("judged is slurm 11 (1 line")
    assert put(*lines, job="12").run == put(*lines).run == "slurm 12"
    for wrong, why in (("11", "several jobs are called so"), ("9", "no line that counts is of it")):
        with pytest.raises(InputError, match=rf"--facts-job '{wrong}': {why}; there are: slurm 12 \(2 lines"):
            put(*lines, job=wrong)
    with pytest.raises(InputError, match="no line that counts is of it; there are: none"):
        put(line(0, age=4000), job="12")


def test_lines_of_logs_are_found_and_torn_ones_never_count() -> None:
    whole, other = line(0).rstrip(b"\n"), line(1).rstrip(b"\n")
    for before in (b"", b"3: ", b"[1,2]<stdout>:", b"[pod/train-0/netdoctor] ", b"\xff\x00 "):
        found = decode(before + whole + b"\r\n", "log:7")
        assert found is not None
        assert (found.node, found.fault) == ("gpu00000", None)
    for noise in (b"", b"{}", b"WARNING: no MPI\n", b'{"schema":"netdoctor.report/1"}', whole[40:]):
        assert decode(noise, "log:7") is None
    # What a shared pipe makes of two tasks that write at once, wherever it tears.
    chance = random.Random(7)
    for _ in range(400):
        at, back = chance.randrange(1, len(whole)), chance.randrange(1, len(other))
        torn = (whole[:at] + other[back:], whole[:at] + other, whole[:at], whole[:at] + b"\xff" + whole[at:])
        for text in torn:
            found = decode(text, "log:1")
            counts = found is not None and found.fault is None
            assert not counts or text == whole or text.endswith(other), text


@pytest.mark.parametrize(
    "fields",
    [
        {"taken": "yesterday"}, {"taken": "2026-11-22T08:01:12"}, {"taken": "0001-01-01T00:00:00Z"},
        {"task": {"rank": -1}}, {"task": {"rank": 1e30}}, {"task": {"nodes": "all"}}, {"task": []},
        {"task": {"job": "x" * 300}}, {"job": {"MASTER_ADDR": "x" * 300}}, {"job": dict.fromkeys("abc", "")},
        {"taken": 5}, {"facts": None, "crc": "00000000"}, {"crc": ""}, {"session": {"python": []}},
        {"version": None},
    ],
)  # fmt: skip
def test_fields_that_nobody_writes_make_a_broken_line(fields: Mapping[str, Any]) -> None:
    good = json.loads(line(0))
    found = decode(json.dumps({**good, **fields}, separators=(",", ":")).encode(), "f:1")
    assert found is not None
    assert (found.node, found.fault) == ("gpu00000", Fault.BROKEN)


def test_names_that_are_none_are_nobodys() -> None:
    for name in ("", "-oProxyCommand=x", "a b", "x;y", "\x1b[2J", "n" * 300, "../n1"):
        text = json.dumps({**json.loads(line(0)), "node": name}, separators=(",", ":")).encode()
        found = decode(text, "f:1")
        assert found is not None
        assert (found.node, found.fault) == ("", Fault.BROKEN)
        both = pool_lines([found, found], [], Rules(now=NOW))
        assert said(both) == {"unreadable1": "broken", "unreadable2": "broken"}


def written(folder: Path, count: int, **files: bytes) -> list[Written]:
    for i in range(count):
        (folder / f"{clusters.name(i)}.facts.jsonl").write_bytes(line(i))
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return list(read([str(folder)]))


def test_a_count_that_no_job_has_is_refused() -> None:
    for odd in ({"nodes": 90_000_000}, {"node_rank": 90_000_000}, {"world": 90_000_000, "local_world": 1}):
        own = Task(launcher="openmpi", job="pmix 7", **odd)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="nodes, as f1:1 has it, 100000 are judged"):
            put(line(0, own=replace(own, nodes=2, node_rank=0, world=2, local_world=1)), line(1, own=own))


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_node_whose_name_stands_for_something_else_is_told_apart(name: str, tmp_path: Path) -> None:
    job = replace(SLURM, nodelist=f"{name},gpu00001", nodes=2)
    pool = put(line(name, own=job), line(1, own=job))
    assert [(t.id, t.host) for t in pool.targets] == [(f"{name}:22", name), ("gpu00001", "gpu00001")]
    assert not any(one.fault for one in pool.lines.values())
    assert said(put(line(1, own=job))) == {f"{name}:22": "absent", "1": ""}
    assert [(t.id, t.host) for t in put(line(name, own=ALONE)).targets] == [(f"{name}:22", name)]
    # Its file cannot be read, and its report can be merged and asked for again.
    (tmp_path / f"{name}.facts.jsonl").write_bytes(b"")
    assert [one.node for one in read([str(tmp_path)])] == [f"{name}:22"]
    (tmp_path / f"{name}.facts.jsonl").write_bytes(line(name, now=time.time(), own=ALONE))
    request = ScanRequest(facts=(str(tmp_path),), via=FILED, save=None)
    plan = prepare(request, known=registry.load(plugins=False))
    save(assemble(plan, plan.scan().run(plan.transport), 1.0), tmp_path / "r.json")
    assert [(one.node, one.fault) for one in read([str(tmp_path / "r.json")])] == [(f"{name}:22", None)]
    again = kept_request(load(tmp_path / "r.json"), {}, tmp_path / "r.json")
    assert [(t.id, t.host) for t in again.targets or ()] == [(f"{name}:22", name)]


def test_files_are_looked_at_before_they_are_believed(tmp_path: Path) -> None:
    names = ("open", "foreign", "empty", "noise", "pipe", "gone")
    places = {name: tmp_path / f"{name}.facts.jsonl" for name in names}
    places["open"].write_bytes(line("open"))
    places["open"].chmod(0o666)
    places["foreign"].write_bytes(line("foreign"))
    places["empty"].write_bytes(b"")
    places["noise"].write_bytes(b"no facts\n")
    os.mkfifo(places["pipe"])
    places["gone"].symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "io.jsonl").symlink_to("/proc/self/mem")  # a regular file whose first byte is an I/O error
    (tmp_path / ".n1.facts.jsonl.1234.tmp").write_bytes(b"half of")
    (tmp_path / "README").write_bytes(b"")
    if os.geteuid() == 0:
        os.chown(places["foreign"], 4321, 4321)
    else:
        places["foreign"].unlink()
    found = {one.node: (one.fault, one.detail) for one in written(tmp_path, 2)}
    assert found.pop("foreign", (Fault.FOREIGN, ""))[0] == Fault.FOREIGN
    assert {node: fault for node, (fault, _) in found.items()} == {
        "gpu00000": None, "gpu00001": None, "open": Fault.FOREIGN, "empty": Fault.BROKEN,
        "noise": Fault.BROKEN, "pipe": Fault.UNREAD, "gone": Fault.UNREAD,
        "folder": Fault.UNREAD, "io": Fault.UNREAD,
    }  # fmt: skip
    assert "mode 666" in found["open"][1]
    if os.geteuid() == 0:
        trusted = {one.node: one.fault for one in read([str(tmp_path)], 4321)}
        assert trusted["foreign"] is None
    (tmp_path / "empty folder").mkdir()
    for word in ("nothing*", "none", "empty folder"):
        with pytest.raises(InputError, match="--facts"):
            list(read([str(tmp_path / word)]))
    # A file that is named twice is one file.
    one = str(tmp_path / "gpu00000.facts.jsonl")
    assert len(list(read([one, str(tmp_path / "gpu0000[0]*")]))) == 1


def test_a_merged_cluster_is_judged_as_one_and_the_absent_are_open(tmp_path: Path) -> None:
    now = time.time()
    for i, (node, facts) in enumerate(clusters.replies(4, "healthy")):
        own = replace(SLURM, nodes=5, nodelist="gpu[00000-00004]", node_rank=i)
        (tmp_path / f"{node}.facts.jsonl").write_bytes(line(node, own=own, now=now, facts=json.loads(facts)))
    request = ScanRequest(facts=(str(tmp_path),), via=FILED, save=None, profile="quick")
    known = registry.load(plugins=False)

    def report() -> Any:
        plan = prepare(request, known=known)
        return assemble(plan, plan.scan().run(plan.transport), 1.0)

    first = report()
    assert first.verdict.state == "undecided"
    assert [(cause.key, cause.nodes) for cause in first.causes] == [("facts-absent", "gpu00004")]
    assert first.undecided_nodes == ("gpu00004",)
    # The one that was missing writes, and says that its driver is another one.
    facts = json.loads(dict(clusters.replies(5, "healthy"))[clusters.name(4)])
    good = dict(facts)
    own = replace(SLURM, nodes=5, node_rank=4)
    place = tmp_path / "gpu00004.facts.jsonl"
    place.write_bytes(line(4, own=own, now=now, facts=facts))
    assert (report().verdict.state, report().verdict.exit_code) == ("ready", 0)
    small = {"memlock_soft_bytes": 65536, "memlock_hard_bytes": 65536}
    facts["limits"] = {"value": {**facts["limits"]["value"], **small}}
    place.write_bytes(line(4, own=own, now=now, facts=facts))
    found = report()
    assert {cause.nodes for cause in found.causes if cause.status == "fail"} == {"gpu00004"}
    commands = [c for cause in found.causes for fix in cause.fixes for c in fix.commands]
    assert commands
    assert not any("ssh " in command.shell for command in commands), "nobody has said that there is SSH"
    # Facts that are no facts, or too many: that node alone is unknown.
    place.write_bytes(line(4, own=own, now=now, facts={"host": {"value": 5}, "net": 7}))
    assert report().undecided_nodes == ("gpu00004",)
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    place.write_bytes(line(4, own=own, now=now, facts={**facts, "host": deep}))
    assert report().undecided_nodes == ("gpu00004",)
    # A node's own word that there is nothing to look at is taken of what a machine may be without.
    for why in ("not_applicable", "not_collected", "not_examined"):
        none = {"missing": {"why": why, "detail": ""}}
        for group in ("host", "limits", "net", "gpu", "rdma", "software", "env", "resolve", "port_holder"):
            place.write_bytes(line(4, own=own, now=now, facts={**good, group: none}))
            assert report().undecided_nodes == ("gpu00004",), (group, why)
    place.write_bytes(line(4, own=own, now=now, facts={**good, "ray": none, "kernel_log": none}))
    assert report().verdict.state == "ready"


@pytest.mark.parametrize(
    ("environ", "wanted", "name"),
    [
        ("", {}, ""),
        (
            "SLURM_JOB_ID=12 SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_NUM_TASKS=4 "
            "SLURM_STEP_NUM_NODES=2 SLURM_JOB_NUM_NODES=9 SLURM_JOB_NODELIST=n[1-9] "
            "SLURM_STEP_NODELIST=n[1-2] SLURMD_NODENAME=n2",
            {"launcher": "slurm", "job": "slurm 12", "rank": 3, "world": 4, "local_rank": 1, "node_rank": 1,
             "nodes": 2, "nodelist": "n[1-2]"},
            "n2",
        ),
        (
            "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
            "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=prterun-n1-7@1 PMIX_HOSTNAME=n2 SLURMD_NODENAME=n1",
            {"launcher": "openmpi", "job": "pmix prterun-n1-7@1", "rank": 2, "world": 4, "local_rank": 0,
             "local_world": 2},
            "n2",
        ),
        # Hydra hands on what the first node has, its SLURMD_NODENAME among it.
        (
            "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 SLURM_JOB_ID=5 SLURMD_NODENAME=n1 "
            "SLURM_PROCID=0 SLURM_JOB_NODELIST=n1,n2",
            {"launcher": "hydra", "job": "slurm 5", "rank": 1, "world": 2, "local_rank": 0, "local_world": 1,
             "nodes": 2, "nodelist": "n[1-2]"},
            "",
        ),
        (
            "TORCHELASTIC_RUN_ID=none RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 "
            "GROUP_WORLD_SIZE=2",
            {"launcher": "torchrun", "rank": 5, "world": 8, "local_rank": 1, "local_world": 4, "node_rank": 1,
             "nodes": 2},
            "",
        ),
        (
            "KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=3 PET_NNODES=4 POD_NAME=train-3-x7k2p",
            {"launcher": "kubernetes", "node_rank": 3, "nodes": 4},
            "train-3-x7k2p",
        ),
        ("JOB_ID=7 RANK=1 WORLD_SIZE=2", {}, ""),
        ("SLURM_JOB_ID=12 SLURM_PROCID=-1 SLURM_NODEID=9999999999999999999999", {"launcher": "slurm",
         "job": "slurm 12"}, ""),
    ],
)  # fmt: skip
def test_what_launchers_tell_their_tasks(environ: str, wanted: dict[str, Any], name: str) -> None:
    known = dict(pair.split("=", 1) for pair in environ.split())
    assert task(known) == Task(**wanted)
    assert node_name(known) == (name or os.uname().nodename)


def test_job_lists_of_batch_systems(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("n1\nn1\nn2\nn2\n")
    pbs = task({"PBS_JOBID": "9.head", "PBS_NODEFILE": str(nodes), "PBS_NODENUM": "1"})
    assert pbs == Task(launcher="pbs", job="pbs 9.head", node_rank=1, nodes=2, nodelist="n[1-2]")
    lsf = task({"LSB_JOBID": "5", "LSB_MCPU_HOSTS": "n1 8 n2 8"})
    assert lsf == Task(launcher="lsf", job="lsf 5", nodes=2, nodelist="n[1-2]")
    nodes.write_text("n1 8 all.q UNDEFINED\nn2 8 all.q UNDEFINED\n")
    sge = task({"JOB_ID": "7", "PE_HOSTFILE": str(nodes), "NHOSTS": "2"})
    assert sge == Task(launcher="sge", job="sge 7", nodes=2, nodelist="n[1-2]")


def test_where_the_job_meets_is_what_its_tasks_say_whatever_this_shell_has(tmp_path: Path) -> None:
    meets = {"MASTER_ADDR": "gpu00001", "MASTER_PORT": "29511"}
    for i in range(2):
        (tmp_path / f"{i}.jsonl").write_bytes(line(i, now=time.time(), job=meets))
    file = tmp_path / "train.env"
    file.write_text("MASTER_ADDR=gpu00007\n")
    here = {"MASTER_ADDR": "gpu00000"}
    for environ, said, addr, where in (
        ({}, None, "gpu00001", TASKS),
        (here, None, "gpu00001", TASKS),
        (here, file, "gpu00007", "train.env:1"),
    ):
        asked = {"facts": (str(tmp_path),), "via": FILED, "save": None}
        plan = prepare(
            ScanRequest(**asked, environ=environ, env_file=said), known=registry.load(plugins=False)
        )
        assert (plan.job.master_addr, plan.job.master_port) == (addr, 29511)
        assert plan.job.env_from == {"MASTER_ADDR": where, "MASTER_PORT": TASKS}
        notes = [note.text for note in assemble(plan, plan.scan().run(plan.transport), 1.0).notes]
        assert not any("from this shell" in note for note in notes)
        apart = "MASTER_ADDR is gpu00001, as the tasks have it; gpu00000 of this shell is not taken"
        assert any(note.startswith(apart) for note in notes) is bool(environ and not said)


def test_a_report_of_files_is_as_old_as_the_oldest_of_them(tmp_path: Path) -> None:
    """However often it is judged: nothing was measured then."""
    now = time.time()
    for i, age in enumerate((30, 1200, 5)):
        (tmp_path / f"{i}.jsonl").write_bytes(line(i, age, now=now))
    report, file = None, tmp_path / "r.json"
    for words in ([tmp_path], [file]):
        plan = prepare(
            ScanRequest(facts=tuple(map(str, words)), via=FILED, save=None),
            known=registry.load(plugins=False),
        )
        report = assemble(plan, plan.scan().run(plan.transport), 1.0)
        save(report, file)
        assert instant(report.run.started).timestamp() == pytest.approx(now - 1200, abs=1)
    assert report
    assert "too old" in not_ours_now(report, now=now, max_age_s=1000.0)


def test_what_is_written_is_read_as_it_was() -> None:
    facts = {"host": {"value": {"kernel": "6 \u202e\x7f \x1b[2J ##vso[x]"}}}
    text = line(0, facts=facts, job={"MASTER_ADDR": "n1", "NCCL_DEBUG": "INFO"})
    assert text.endswith(b"}\n")
    assert text.count(b"\n") == 1
    assert not set(text) & {0x1B, 0x7F}
    found = decode(text, "f:1")
    assert found is not None
    assert (found.task, found.job, found.python) == (SLURM, {"MASTER_ADDR": "n1"}, tuple(PYTHON.values()))
    assert found.written == pytest.approx(NOW - 5)
    assert json.loads(found.facts) == facts


def test_merging_grows_with_the_lines_and_no_faster() -> None:
    def work(count: int, *, listed: bool) -> int:
        own = replace(SLURM, nodes=count, nodelist=f"gpu[00000-{count - 1:05d}]")
        # Healthy ones, and of each kind of trouble some: twice, old, of another job, cut off, absent.
        lines = [line(i, own=own) for i in range(count) if i % 7]
        lines += [line(i, age=1 + i % 5 * 2000, own=own) for i in range(0, count, 7) if i % 3]
        lines += [line(i, own=OTHER) for i in range(0, count, 11)]
        lines += [line(i, own=own)[:-30] for i in range(0, count, 13)]
        found = [one for text in lines if (one := decode(text, "f:1"))]
        hosts = [Target(id=f"{clusters.name(i)}.org", host=f"{clusters.name(i)}.org") for i in range(count)]
        rules = Rules(now=NOW)
        return steps(lambda: pool_lines(found, hosts if listed else [], rules))

    for listed in (False, True):
        work(2, listed=listed)  # what is worked out once
        few, many = work(30, listed=listed), work(120, listed=listed)
        assert many < 1.05 * 4 * few, f"30 nodes {few} steps, 120 nodes {many}"


def test_reports_are_merged_by_what_their_nodes_answered(tmp_path: Path) -> None:
    """Halves that were scanned apart are one cluster; a node that a scan did not reach is unknown."""
    known, now = registry.load(plugins=False), time.time()
    (tmp_path / "all").mkdir()
    for i, (node, facts) in enumerate(clusters.replies(4, "healthy")):
        place = tmp_path / ("a" if i < 2 else "b")
        place.mkdir(exist_ok=True)
        (place / f"{node}.facts.jsonl").write_bytes(line(node, own=ALONE, now=now, facts=json.loads(facts)))
    (tmp_path / "b" / "gpu00009.facts.jsonl").write_bytes(b"")

    def judged(*words: Path) -> Any:
        request = ScanRequest(facts=tuple(map(str, words)), via=FILED, save=None, profile="quick")
        plan = prepare(request, known=known)
        return assemble(plan, plan.scan().run(plan.transport), 1.0)

    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        save(judged(tmp_path / file.stem), file)
    whole = judged(*files)
    assert whole.healthy_nodes == tuple(clusters.name(i) for i in range(4))
    assert whole.undecided_nodes == ("gpu00009",)
    (cause,) = whole.causes
    assert "that scan did not reach it" in cause.seen[0]
    # One node was looked at again: of the others it is as old as ever.
    old = replace(load(files[0]), run=replace(load(files[0]).run, started=stamp(now - 7200)))
    save(old, tmp_path / "old.json")
    assert {one.node: one.written for one in read([str(tmp_path / "old.json")])} == dict.fromkeys(
        (clusters.name(0), clusters.name(1)), pytest.approx(now - 7200, abs=1)
    )
    # A report beside lines of a job: of no job itself, and no node twice.
    (tmp_path / "all" / "gpu00002.facts.jsonl").write_bytes(line(2, now=now))
    both = judged(files[0], tmp_path / "all")
    assert {t.id for t in both.targets} >= {"gpu00000", "gpu00001", "gpu00002"}
    assert set(both.undecided_nodes) == {"gpu00002"}  # it wrote one fact of those that are asked for
    (tmp_path / "all" / "gpu00002.facts.jsonl").write_bytes(line(1, now=now))
    (cause,) = [one for one in judged(files[0], tmp_path / "all").causes if one.key == "facts-twice"]
    assert cause.nodes == "gpu00001"
    # A broken one is one broken file.
    files[0].write_bytes(files[0].read_bytes()[:5000])
    found = {one.node: one.fault for one in read([str(files[0]), str(files[1])])}
    assert found == {"a": Fault.BROKEN, "gpu00002": None, "gpu00003": None, "gpu00009": Fault.UNREAD}


def test_what_is_neither_facts_nor_a_report_is_told_before_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").write_text("n1\nn2\n")
    for word, said in {
        "nowhere": "--facts nowhere: no such file or folder",
        "hosts.txt": "--facts hosts.txt: it has no line of netdoctor facts and is not a saved report",
    }.items():
        for command in (["scan"], ["gate"]):
            assert cli.run([*command, "--facts", word, *(["--", "true"] if command == ["gate"] else [])]) == 2
            out, err = capsys.readouterr()
            assert not out
            assert said in err


def test_what_is_found_is_no_link_and_holds_lines_of_facts_alone(tmp_path: Path) -> None:
    """A link, or a second name, makes a log of the user's with a stranger's text in it a file of facts."""
    log, folder = tmp_path / "service.log", tmp_path / "facts"
    folder.mkdir()
    log.write_bytes(b"GET /" + line("ghost", now=time.time()))
    (folder / "a.facts.jsonl").symlink_to(log)
    os.link(log, folder / "b.facts.jsonl")
    plain = folder / "c.facts.jsonl"
    plain.write_bytes(line("gpu1", now=time.time()))
    (folder / "d.facts.jsonl").symlink_to(plain)
    for word in (str(folder), f"{folder}/*"):
        assert {one.node: one.fault for one in read([word])} == {
            "a": Fault.UNREAD, "b": Fault.BROKEN, "gpu1": None, "d": Fault.UNREAD,
        }  # fmt: skip
    # Who names a file has chosen it: the log of a task, with words before each line.
    assert [(one.node, one.fault) for one in read([str(log)])] == [("ghost", None)]
    assert [one.fault for one in read([str(folder / "d.facts.jsonl")])] == [None]
