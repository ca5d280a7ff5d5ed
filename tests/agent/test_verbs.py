"""What perftest is told, and what is read of what it says."""

import shutil
from typing import Any

import pytest

from netdoctor.agent import runtime
from netdoctor.agent.operations import verbs as op_verbs

RAIL = {"device": "mlx5_0", "ib_port": 1, "tcp_port": 18515, "address": "10.0.0.2"}
# The tables of perftest 4.5 in Debian 12, without what is above them.
BANDWIDTH = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1470080          0.00               385.37\t\t   0.735034
---------------------------------------------------------------------------------------
"""
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]
 2       1000          1.80           4.10         1.91     \t       1.93        \t0.07   \t\t2.21    \t\t4.10
"""  # noqa: E501  as it is


def test_command_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    line = op_verbs.command({"test": "bandwidth", "seconds": 2}, RAIL, client=True)
    assert " ".join(line) == (
        "/usr/bin/ib_write_bw -F -d mlx5_0 -i 1 -p 18515 -q 4 -s 65536 --report_gbits -D 2 10.0.0.2"
    )
    line = op_verbs.command({"test": "latency", "seconds": 2}, RAIL, client=False)
    assert " ".join(line) == "/usr/bin/ib_write_lat -F -d mlx5_0 -i 1 -p 18515 -s 2 -n 1000"


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "--help"}, {"device": "mlx5_0;id"}, {"device": "mlx5_0\n"}, {"address": "-h"},
        {"address": "host.example"}, {"tcp_port": 22}, {"tcp_port": 70000}, {"ib_port": 0}, {"ib_port": "x"},
        {"seconds": 0}, {"seconds": 3600},
    ],
)  # fmt: skip
def test_nothing_else_becomes_an_argument(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    args = {"test": "bandwidth", "seconds": 2, **changes}
    with pytest.raises(ValueError):  # noqa: PT011  whichever it is
        op_verbs.command(args, {**RAIL, **changes}, client=True)


def test_figures() -> None:
    assert op_verbs.figure("---\n" + BANDWIDTH, "bandwidth") == 385.37
    assert op_verbs.figure(LATENCY, "latency") == 1.91
    for text in (
        "",
        LATENCY,
        BANDWIDTH.partition("\n")[0],
        BANDWIDTH.replace("385.37", "nan"),
        "BW average[Gb/sec]\n1 2 3",
    ):
        assert op_verbs.figure(text, "bandwidth") is None, text


def test_programs_that_end_badly(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(script: str) -> None:
        monkeypatch.setattr(op_verbs, "command", lambda args, rail, client: ["/bin/sh", "-c", script])

    def ran(test: str = "bandwidth") -> dict[str, Any]:
        (answer,) = op_verbs.verbs({"role": "run", "test": test, "seconds": 1, "rails": [RAIL]})["rails"]
        return dict(answer)

    # In an agent a thread of another priority starts children.
    monkeypatch.setattr(runtime, "normally", lambda function: function())
    monkeypatch.setattr(op_verbs, "START_S", -0.5)
    program("echo 'Failed status 12: wr_id 0 syndrom 0x81' >&2; exit 1")
    assert ran() == {"error": "exit status 1: Failed status 12: wr_id 0 syndrom 0x81", "dead": True}
    program("echo nothing of use")
    assert ran() == {"error": "exit status 0: nothing of use", "dead": False}
    program("sleep 60")
    assert ran()["error"].startswith("not done in time")
    monkeypatch.setattr(op_verbs, "READY_S", 0.2)
    program("sleep 60")
    (answer,) = op_verbs.verbs({"role": "serve", "test": "latency", "seconds": 1, "rails": [RAIL]})["rails"]
    assert answer["error"].startswith("not done in time")
    assert not op_verbs._servers


def test_a_server_that_nobody_ends_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "normally", lambda function: function())
    monkeypatch.setattr(op_verbs, "command", lambda args, rail, client: ["/bin/sleep", "60"])
    heard = iter([False])
    monkeypatch.setattr(op_verbs, "listening", lambda port: next(heard, True))
    args = {"role": "serve", "test": "latency", "seconds": 1, "rails": [RAIL], "ttl_s": 0.1}
    assert op_verbs.verbs(args) == {"rails": [{"ready": True}]}
    (server,) = op_verbs._servers
    assert server.wait(20) == -9
    op_verbs.verbs({"role": "stop"})
    assert not op_verbs._servers


def test_what_is_no_request() -> None:
    for args in ({}, {"role": "run"}, {"role": "run", "test": "rm", "rails": []}):
        with pytest.raises(runtime.Unavailable):
            op_verbs.verbs(args)
    with pytest.raises(runtime.Unavailable):
        op_verbs.verbs({"role": "serve", "test": "latency", "rails": [RAIL] * 33})
