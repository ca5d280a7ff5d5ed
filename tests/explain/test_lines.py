"""What a line says of who wrote it and when, and what is left of it without what others put in front."""

from datetime import datetime

from netdoctor.compat import UTC
from netdoctor.explain.lines import message, moment, speaker, speaker_of_log

SPEAKERS = {
    "[rank3]:[E708 14:11:08.402 ProcessGroupNCCL.cpp:563] Watchdog": {"rank": 3},
    "[1,13]<stderr>:NCCL WARN x": {"rank": 13},
    "[E ProcessGroupNCCL.cpp:475] [Rank 2] Watchdog caught": {"rank": 2},
    "[PG ID 0 PG GUID 0(default_pg) Rank 11] Exception": {"rank": 11},
    "gpu-a02:946:988 [5] transport/net_ib.cc:839 NCCL WARN NET/IB": {"host": "gpu-a02", "local_rank": 5},
    "n1:9:9 [0] NCCL INFO comm 0x2 rank 6 nranks 16 cudaDev 0": {
        "rank": 6,
        "world_size": 16,
        "host": "n1",
        "local_rank": 0,
    },
    "(RayTrainWorker pid=311, ip=10.0.0.2) RuntimeError: x": {"host": "10.0.0.2"},
    "gpu-a02: RuntimeError: Connection refused": {"host": "gpu-a02"},
    "12: RuntimeError: Connection refused": {"rank": 12},
    "[default7]:RuntimeError": {"local_rank": 7},
    "[pod/trainer-1/pytorch] RuntimeError": {"host": "trainer-1"},
    "ERROR:torch.distributed.elastic:failed (exitcode: -9) local_rank: 4 (pid: 7)": {"local_rank": 4},
    "May  5 12:11:10 gpu07 kernel: NVRM: Xid": {},
    "torch.distributed.DistBackendError: NCCL error": {},
    "RuntimeError: Connection refused": {},
    "step 3: loss 1.0": {},
}

TIMES = {
    "2024-08-04 18:17:57,324\tWARNING utils.py": (datetime(2024, 8, 4, 18, 17, 57, 324000, UTC), False),
    "[2026-03-13 22:26:02] host": (datetime(2026, 3, 13, 22, 26, 2, 0, UTC), False),
    "2026-03-13T22:26:02.5Z stderr F x": (datetime(2026, 3, 13, 22, 26, 2, 500000, UTC), True),
    "2026-03-13T22:26:02.5+02:00 x": (datetime(2026, 3, 13, 20, 26, 2, 500000, UTC), True),
    "[W1008 23:40:22.836678340 socket.cpp:767] x": (datetime(2000, 10, 8, 23, 40, 22, 836678, UTC), False),
    "W1119 08:22:22.445783 1513663 redis": (datetime(2000, 11, 19, 8, 22, 22, 445783, UTC), False),
    "INFO 11-01 23:16:33 x.py:56] a": (datetime(2000, 11, 1, 23, 16, 33, 0, UTC), False),
    "May  5 12:11:10 gpu07 kernel: x": (datetime(2000, 5, 5, 12, 11, 10, 0, UTC), False),
    "1700000000.125 x": (datetime(2023, 11, 14, 22, 13, 20, 125000, UTC), True),
    "[ 1843.308145] NVRM: x": None,
    "2024-13-40 99:00:00 x": None,
    "[E socket.cpp:793] x": None,
}

MESSAGES = {
    "[1,3]<stdout>:[rank3]: boom now": "boom now",
    "(RayWorkerWrapper pid=12, ip=10.0.0.1) boom now": "boom now",
    "2026-03-13T22:26:02.5Z stderr F [rank1]: boom now": "boom now",
    "gpu-a02: gpu-a02:1:2 [0] NCCL WARN boom": "NCCL WARN boom",
    "3: boom": "boom",
    "boom: now": "boom: now",
}

NAMES = {
    "out/rank_15.log": {"rank": 15},
    "logs/rank-3/stderr.txt": {"rank": 3},
    "t/none_abc/attempt_0/2/stderr.log": {"local_rank": 2},
    "slurm-1234-7.out": {"rank": 7},
    "slurm-1234.out": {},
    "slurm-1234_5.out": {},
    "nccl.gpu-a02.4711": {"host": "gpu-a02"},
    "train.log": {},
}


def test_who_wrote_a_line() -> None:
    for line, wanted in SPEAKERS.items():
        found = speaker(line)
        fields = ("rank", "local_rank", "host", "world_size")
        got = {name: getattr(found, name) for name in fields if getattr(found, name) not in (None, "")}
        assert got == wanted, line


def test_when_a_line_was_written() -> None:
    for line, wanted in TIMES.items():
        found = moment(line)
        assert (found is None) == (wanted is None), line
        if found is not None and wanted is not None:
            assert abs(found.seconds - wanted[0].timestamp()) < 1e-3, line
            assert found.aware is wanted[1], line


def test_what_is_put_in_front_of_a_line() -> None:
    for line, wanted in MESSAGES.items():
        assert message(line) == wanted, line


def test_what_a_name_says_of_who_writes_there() -> None:
    for name, wanted in NAMES.items():
        found = speaker_of_log(name)
        got = {
            k: getattr(found, k)
            for k in ("rank", "local_rank", "host")
            if getattr(found, k) not in (None, "")
        }
        assert got == wanted, name
