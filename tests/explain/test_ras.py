"""NCCL's RAS: what its answers say, and how it is asked. The server is a stand-in: there is no GPU here."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.agent.operations import ras as op_ras
from netdoctor.cli.explain_scan import split_endpoint
from netdoctor.errors import InputError
from netdoctor.explain import ras
from netdoctor.explain.engine import explain
from netdoctor.lab import Lab
from tests.explain import ras_server
from tests.hostile import HOSTILE
from tests.scan.harness import NETDOCTOR, environment

NODES = ["10.0.0.1", "10.0.0.2"]
FORMS = {
    "json": lambda fault: ras_server.as_json(NODES, fault),
    "text": lambda fault: ras_server.as_text(NODES, fault, False),
    "text of 2.24": lambda fault: ras_server.as_text(NODES, fault, True),
}
WHO = "rank 5 (GPU 1, process 4005 on node 10.0.0.2)"
# What each fault is told as, and leads to first.
SAID = {
    "dead": (f"[rank5]: NCCL RAS: {WHO} is dead: not reached for a minute", "host_oom_killed"),
    "silent": (f"[rank5]: NCCL RAS: {WHO} does not answer", "collective_timeout_slow_rank"),
    "behind": (f"{WHO} launched AllReduce 6649 times, others 6650 times", "collective_timeout_slow_rank"),
    "sequence": (f"{WHO} launched Broadcast 13 times, others 12 times: another", "mismatched_collectives"),
    "error": (f"{WHO} reported Remote process error", "gpu_oom_one_rank"),
}


@pytest.mark.parametrize("form", FORMS)
def test_answers_lead_to_causes(form: str, tmp_path: Path):
    assert list(ras.lines(ras.read(FORMS[form]("none")))) == []
    for fault, (line, label) in SAID.items():
        if fault == "sequence" and form == "text of 2.24":  # it has one count for all operations
            continue
        text = FORMS[form](fault)
        words = line.replace("AllReduce", "collective") if form == "text of 2.24" else line
        assert ras.is_status(text.encode()[:4096])
        told = list(ras.lines(ras.read(text)))
        assert any(words in one for one in told), (fault, told)
        (tmp_path / "ras.txt").write_text(text)
        found = explain([str(tmp_path / "ras.txt")])
        assert found.reasons[0].known.label == label, fault
        assert found.reasons[0].lines[0].rank == 5
        same = explain([], ras={"RAS of gpu1": text})
        assert [one.known.label for one in same.reasons] == [one.known.label for one in found.reasons]


def test_other_json_that_names_nccl_is_no_answer() -> None:
    assert not ras.is_status(b'{"nccl_version": "2.28.9", "loss": 2.0}')
    assert not ras.is_status(b'{"communicators_count": 2}')


def test_a_log_and_an_answer_are_read_together(tmp_path: Path):
    (tmp_path / "a.log").write_text("step 1 loss 2.0\n")
    found = explain([str(tmp_path / "a.log")], ras={"RAS of gpu1": FORMS["json"]("dead")})
    assert [Path(source.name).name for source in found.sources] == ["a.log", "RAS of gpu1"]
    with pytest.raises(InputError, match="no log was named"):
        explain([])


def test_ranks_that_begin_or_are_aborted_are_told_apart_from_those_that_run():
    answer = json.loads(FORMS["json"]("none"))
    ranks = answer["communicators"][0]["ranks"]
    ranks[5]["status"]["init_state"] = 7
    ranks[6]["status"]["abort_flag"] = True
    said = [line.partition(") ")[2] for line in ras.lines(ras.read(json.dumps(answer)))]
    assert said == ["has status INIT, unlike the others", "has status ABORT, unlike the others"]


@pytest.mark.parametrize(
    ("name", "label", "line"),
    [
        ("dead_2.28.9.json", "host_oom_killed", "[rank1]: NCCL RAS: rank 1 (GPU 0, process 2160 on node"),
        ("left_2.28.9.txt", "collective_timeout_slow_rank", "[rank1]: NCCL RAS: communicator 0xbe1943"),
        ("other_collective_2.28.9.json", "mismatched_collectives", "launched Broadcast 0 times, others 1"),
    ],
)
def test_what_nccl_2_28_answered_of_jobs_on_an_h100(name: str, label: str, line: str):
    found = explain([], ras={"RAS of gpu1": Path(__file__).with_name("ras").joinpath(name).read_text()})
    assert found.reasons[0].known.label == label
    assert line in found.reasons[0].lines[0].text


def test_reads_what_ncclras_printed_of_a_real_job():
    """The example in NVIDIA's manual of RAS, with the names of its processes."""
    text = """
Job summary
===========

Communicators... (2.05s)
=============

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#1-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210

#2-0 (9e17999afaa87dbb) MISMATCH
  Communicator ranks have different status
  26 ranks have status UNKNOWN
  2 ranks have status FINALIZE
  Rank 4 -- GPU 4 managed by process 507289 on node 172.16.64.210
  Rank 20 -- GPU 4 managed by process 3500075 on node 172.16.64.213
"""
    status = ras.read(text)
    assert status.communicators[1].launched == {"collective": {0: 6649, 2: 6649}}
    assert status.communicators[1].others == {"collective": 6650}
    assert status.communicators[2].states == {4: "FINALIZE", 20: "FINALIZE"}
    told = list(ras.lines(status))
    assert "process 3487984 on node 172.16.64.213) does not answer" in told[0]
    assert not any("launched" in line for line in told)  # the others wait for who is missing


@pytest.mark.parametrize("form", FORMS)
def test_hostile_and_damaged_answers_are_harmless(form: str):
    whole = FORMS[form]("sequence")
    for cut in range(0, len(whole), 297):
        list(ras.lines(ras.read(whole[:cut])))
    dead = FORMS[form]("dead")
    told = {
        name: dead.replace("10.0.0.2", json.dumps(text)[1:-1] if form == "json" else text)
        for name, text in [*HOSTILE.items()][::6]
    }
    reasons = explain([], ras=told).reasons
    assert reasons
    for line in (line for reason in reasons for line in reason.lines):
        assert line.text.isprintable()
    for odd in (
        "{",
        "[]",
        "{}",
        '{"communicators": [3, {"ranks": 7, "size": "x"}, {"ranks": [[]]}]}',
        "[" * 10**5,
    ):
        list(ras.lines(ras.read(odd)))


@pytest.mark.parametrize(
    ("place", "host", "port"),
    [
        ("gpu03", "gpu03", 28028),
        ("gpu03:28029", "gpu03", 28029),
        ("ml@gpu03", "ml@gpu03", 28028),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[fd00::1]:28029", "fd00::1", 28029),
        ("fd00::1", "fd00::1", 28028),
    ],
)
def test_places_are_taken_apart(place: str, host: str, port: int):
    assert split_endpoint(place) == (host, port)


@pytest.mark.parametrize("place", ["", ":28028", "gpu03:", "gpu03:0", "gpu03:65536", "gpu03:x", "a:1:2"])
def test_what_is_no_place_is_refused(place: str):
    with pytest.raises(InputError, match="HOST:PORT"):
        split_endpoint(place)


@contextlib.contextmanager
def server(*options: str) -> Iterator[int]:
    argv = [sys.executable, ras_server.__file__, "--port", "0", *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().split()[1])
        finally:
            process.kill()


@pytest.mark.process
@pytest.mark.parametrize("release", ["2.24", "2.30"])
def test_the_agent_asks_as_the_client_does(release: str):
    with server("--fault", "dead", "--release", release) as port:
        reply = op_ras.ras({"port": port})
        assert reply["protocol"] == "2"
        assert not reply["cut"]
        assert SAID["dead"][0] in list(ras.lines(ras.read(reply["text"])))
        assert reply["text"].startswith("{") == (release == "2.30")
        real = os.environ.get("NETDOCTOR_TEST_NCCLRAS")
        if not real:
            pytest.skip("NETDOCTOR_TEST_NCCLRAS names no ncclras to hold the server against")
        asked = subprocess.run([real, "-p", str(port), "-v"], capture_output=True, text=True, timeout=60)
        assert asked.returncode == 0, asked.stderr
        assert asked.stdout == ras_server.as_text(NODES, "dead", release == "2.24")


@pytest.mark.process
def test_who_is_no_ras_server_is_told():
    import socket
    import threading

    assert op_ras.ras({"port": 1}) == {"error": "ECONNREFUSED"}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve(answers: list[bytes]) -> None:
            for answer in answers:
                client, _ = listening.accept()
                with client:
                    client.sendall(answer)
                    if answer:
                        client.recv(100)

        answers = [b"SSH-2.0-OpenSSH_9.6\r\n", b"x" * 10000, b""]
        thread = threading.Thread(target=serve, args=(answers,))
        thread.start()
        said = [op_ras.ras({"port": port})["error"] for _ in answers]
        thread.join()
        assert said[0].startswith("another service answers there")
        assert "not a RAS server" in said[1]
        assert said[2]
        assert op_ras.ras({"port": port, "timeout_s": 0.2})["error"] == "no answer in time"


@pytest.mark.lab
def test_a_job_that_hangs_is_asked_over_ssh(lab4: Lab, tmp_path: Path):
    """On a node whose RAS is a stand-in: rank 5 is dead."""
    node, other = lab4.nodes[1], lab4.nodes[2]
    source = Path(ras_server.__file__).read_text()
    nodes = f"{lab4.address(lab4.nodes[0])},{lab4.address(node)}"
    argv = ["python3", "-c", source, "--behind", "--fault", "dead", "--nodes", nodes]
    started = lab4.run(node, argv, capture_output=True, text=True, check=True)
    pid = started.stdout.split()[3]
    try:
        run = [*NETDOCTOR, "explain", "log", "--ssh-config", str(lab4.ssh_config), "-o", "json", "--ras"]
        asked = subprocess.run([*run, node], capture_output=True, text=True, cwd=tmp_path, env=environment())
        assert asked.returncode == 0, asked.stderr
        said = json.loads(asked.stdout)
        assert said["causes"][0]["label"] == "host_oom_killed"
        assert said["causes"][0]["lines"][0]["rank"] == said["ranks"]["first"]["rank"] == 5
        assert lab4.address(node) in said["causes"][0]["lines"][0]["text"]
        asked = subprocess.run([*run, other], capture_output=True, text=True, cwd=tmp_path, env=environment())
        assert asked.returncode == 2
        assert f"{other}: port 28028: nobody listens" in asked.stderr
    finally:
        lab4.run(node, ["kill", pid], check=False)
