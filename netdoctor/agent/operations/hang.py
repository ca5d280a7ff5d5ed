"""The `hang` operation: where the ranks of a job that runs on this node are, asked twice.

Read of /proc, of py-spy where it is installed, of NCCL's RAS and of flight records. Nothing is sent to a
process, no signal either, and none is stopped: py-spy runs with --nonblocking.
"""

import base64
import json
import os
import re
import time
import zlib

from .. import runtime
from ..system import files, procs
from . import ras, trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional  # noqa: F401  # in a comment

RANKS_MAX, PIDS_MAX, CHILDREN_MAX, FRAMES_MAX = 64, 65536, 16, 40
WORKERS, DUMP_S, DUMPS_S = 4, 4.0, 8.0
RAS_WAIT_S, RAS_S = 2, 8.0
RECORD_MAX, RECORDS_MAX = 8 << 20, 3 << 20  # of a file, and of all that are sent, packed
# How launchers number ranks: of its own, all, on the node, all on the node.
# torch/distributed/elastic/agent/server/local_elastic_agent.py; srun(1); Open MPI's mpirun(1).
SCHEMES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
)
RECORDS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PYTHON = re.compile(r"(python|pypy)[\d.]*\w?( \(deleted\))?$")


class Process(object):
    """A Python process with a rank. Raises OSError, ValueError where it is none that may be looked at."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.uid = os.stat("/proc/%d" % pid).st_uid
        exe = os.path.basename(os.readlink("/proc/%d/exe" % pid))
        if os.geteuid() not in (0, self.uid) or not _PYTHON.match(exe) or procs.is_scan(pid):
            raise ValueError("of another user, or no Python")
        words = files.read_bytes("/proc/%d/environ" % pid, 1 << 20).decode("utf-8", "replace").split("\0")
        self.env = env = dict(word.split("=", 1) for word in words if "=" in word)
        scheme = next((s for s in SCHEMES if env.get(s[0], "").isdigit() and len(env[s[0]]) < 8), None)
        maps = files.text_or_none("/proc/%d/maps" % pid, 8 << 20) or ""
        self.has_torch = "libtorch" in maps or "xla_extension" in maps
        if scheme is None or not (self.has_torch or scheme is SCHEMES[0]):
            raise ValueError("no rank")
        self.identity = tuple(env.get(name, "") for name in scheme[:3])
        numbers = [int(word) if word.isdigit() else 0 for word in (env.get(name, "") for name in scheme)]
        self.rank, self.world, _, self.local_world = numbers
        meets = [env.get(name, "") for name in ("SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")]
        self.job = "%d %d %s" % (self.uid, self.world, " ".join(meets))


def _parents(pid: int) -> "list[int]":
    found = []  # type: list[int]
    while pid > 1 and len(found) < 64:
        pid = int((procs.stat_fields(pid)[1:2] or ["0"])[0])
        found.append(pid)
    return found


def find() -> "list[Process]":
    """Return the processes that are ranks: not their launchers, and not what they have started."""
    selves = {os.getpid()}.union(_parents(os.getpid()))
    found = {}  # type: dict[int, Process]
    for pid in [pid for pid in procs.pids() if pid not in selves][:PIDS_MAX]:
        try:
            found[pid] = Process(pid)
        except (OSError, ValueError):
            continue
    lines = {pid: [p for p in _parents(pid) if p in found] for pid in found}
    launchers = {p for pid, line in lines.items() for p in line if found[p].identity != found[pid].identity}
    # A wrapper in Python has its rank's variables too, and so have its workers: the first with torch is it.
    with_torch = {(one.job, one.rank) for one in found.values() if one.has_torch}
    ranks = {
        pid: one
        for pid, one in found.items()
        if pid not in launchers and (one.has_torch or (one.job, one.rank) not in with_torch)
    }
    first = [one for pid, one in ranks.items() if not any(p in ranks for p in lines[pid])]
    return sorted(first, key=lambda one: (one.job, one.rank))


def _last_run_s(pid: int) -> float:
    """On the clock of the scheduler, which runs since boot. Of ``se.exec_start  :   13896531.061456``."""
    text = files.text_or_none("/proc/%d/task/%d/sched" % (pid, pid)) or ""
    return float(re.findall(r"se\.exec_start\s*:\s*(\d+\.\d+)", text)[0]) / 1000


def sample(pid: int) -> "dict[str, Any]":
    """Return how the main thread of a process is."""
    task = "/proc/%d/task/%d/" % (pid, pid)
    fields = (files.text_or_none(task + "stat") or "").rpartition(") ")[2].split()
    switches = re.findall(r"\nvoluntary_ctxt_switches:\s*(\d+)", files.text_or_none(task + "status") or "")
    try:
        asleep_s = max(0.0, _last_run_s(os.getpid()) - _last_run_s(pid))  # type: Optional[float]
    except IndexError:  # a kernel without CONFIG_SCHED_DEBUG
        asleep_s = None
    return {
        "state": fields[0] if fields else "",
        "wchan": files.text_or_none(task + "wchan", 100) or "",
        "switches": int(switches[0]) if switches else None,
        "cpu_s": sum(map(int, fields[11:13])) / float(os.sysconf("SC_CLK_TCK")),
        "asleep_s": asleep_s,
        "frames": [],
    }


def frames_of(text: str, pid: int) -> "list[list[Any]]":
    """Return [file, line, name] of the main thread's calls, the innermost first, of ``py-spy dump --json``.

    Raises ValueError, TypeError, AttributeError.
    """
    threads = json.loads(text)
    main = [t for t in threads if t.get("os_thread_id") == pid or t.get("thread_name") == "MainThread"]
    found = (main or threads[-1:] or [{}])[0].get("frames") or []
    return [
        [str(f.get("filename"))[:400], int(f.get("line") or 0), str(f.get("name"))[:200]]
        for f in found[:FRAMES_MAX]
    ]


def _dump(one: Process, into: "dict[str, Any]", notes: "set[str]") -> None:
    """Ask py-spy of the login's path, or of beside the interpreter of a rank that is the user's own."""
    try:
        folders = os.environ.get("PATH", os.defpath)
        if one.uid == os.geteuid() != 0:
            first = files.read_bytes("/proc/%d/cmdline" % one.pid, 4096).partition(b"\0")[0]
            folders += os.pathsep + os.path.dirname(os.fsdecode(first))
        tool = runtime.find_tool("py-spy", folders) or runtime.find_tool("py-spy")
        if tool is None:
            notes.add("py-spy is not installed")
            return
        done = runtime.run_tool([tool, "dump", "--nonblocking", "--json", "--pid", str(one.pid)], DUMP_S)
        if done.code == 0:
            into["frames"] = frames_of(done.out, one.pid)
        else:
            notes.add("py-spy: " + (done.err.strip() or "no answer in time").splitlines()[0][:200])
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as e:
        notes.add("py-spy: " + str(e)[:200])


def samples(ranks: "list[Process]", notes: "set[str]") -> "list[dict[str, Any]]":
    """Return how each is, with its stack where py-spy says it in time."""
    found = [sample(one.pid) for one in ranks]
    waiting = list(zip(ranks, found))  # noqa: B905  # Python 3.6
    until = time.monotonic() + DUMPS_S

    def work() -> None:
        while waiting and time.monotonic() < until:
            try:
                one, into = waiting.pop(0)
            except IndexError:  # another was faster
                return
            _dump(one, into, notes)

    for thread in [runtime.Thread(work) for _ in range(min(WORKERS, len(ranks)))]:
        thread.join(DUMPS_S + DUMP_S)
    if waiting:
        notes.add("py-spy: not all ranks were asked within %d s" % DUMPS_S)
    return found


def links(pid: int) -> "tuple[set[str], list[list[Any]]]":
    """Return (addresses of a process's TCP connections, [peer, times sent again] of unanswered ones)."""
    addresses, stuck = set(), []  # type: set[str], list[list[Any]]
    try:
        inodes = trial.socket_inodes(pid)
    except OSError:
        return addresses, stuck
    for table in ("tcp", "tcp6"):
        for line in (files.text_or_none("/proc/%d/net/%s" % (pid, table), 32 << 20) or "").splitlines()[1:]:
            # 0: 0100007F:0277 0100007F:C350 01 00000000:00000000 01:00000019 00000003 0 0 inode
            part = line.split()
            if len(part) > 9 and part[9] in inodes and part[3] in ("01", "02"):
                near, far = (trial.address(part[i].partition(":")[0]) for i in (1, 2))
                addresses.add(near)
                if part[5].startswith("01") and int(part[6], 16):  # timer 1: it is sent again
                    stuck.append([far, int(part[6], 16)])
    return addresses, stuck[:256]


def _record(one: Process) -> bytes:
    """Return the flight record that a rank has written, packed. Raises OSError, and where it is older."""
    name = next((one.env[name] for name in RECORDS if one.env.get(name)), "/tmp/nccl_trace_rank_")
    path = os.path.join("/proc/%d/cwd" % one.pid, name + str(one.rank))
    stat, age_s = os.stat(path), procs.describe(one.pid)["age_s"]
    if stat.st_uid != one.uid or age_s is None or stat.st_mtime < time.time() - age_s:
        raise OSError("of another job")
    return zlib.compress(files.read_bytes(path, RECORD_MAX), 1)


def _ask_ras(ranks: "list[Process]") -> "dict[str, Any]":
    """Return what `ras` does, asked on the node of the first rank or of the last, so that few are asked."""
    one = next((one for one in ranks if one.rank in (0, one.world - 1)), None)
    port = one.env.get("NCCL_RAS_ADDR", "").rpartition(":")[2] if one is not None else ""
    number = int(port) if port.isdigit() and 0 < int(port) < 65536 else None
    return ras.ras({"port": number, "wait_s": RAS_WAIT_S, "timeout_s": RAS_S}) if one is not None else {}


def _row(one: Process, before: "dict[str, Any]", after: "dict[str, Any]") -> "dict[str, Any]":
    numbers = (files.text_or_none("/proc/%d/task/%d/children" % (one.pid, one.pid), 65536) or "").split()
    children = [
        dict(sample(int(n)), pid=int(n), name=procs.comm(int(n)) or "") for n in numbers[:CHILDREN_MAX]
    ]
    folder = "/proc/%d/fd/" % one.pid
    targets = [files.link_name(folder + name) or "" for name in files.names(folder, 4096)]
    row = {name: getattr(one, name) for name in ("pid", "rank", "world", "local_world", "job")}
    gpu = any(re.match(r"nvidia(\d|ctl)|kfd$", target) for target in targets)
    return dict(row, before=before, after=after, children=children, gpu=gpu)


def hang(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return where this node's ranks are. args: {"wait_s": between the two looks}.

    {"ranks": [{"pid", "rank", "world", "local_world", "job", "gpu", "before", "after": as of `sample`,
    "children", "stuck": as of `links`}], "addresses", "notes", "left_out": ranks beyond RANKS_MAX,
    "ras": two answers of RAS, "records": [[rank, base64 of zlib]]}
    """
    every = find()
    ranks, notes = every[:RANKS_MAX], set()  # type: list[Process], set[str]
    answers = []  # type: list[dict[str, Any]]
    asking = runtime.Thread(lambda: answers.append(_ask_ras(ranks)))
    started = time.monotonic()
    before = samples(ranks, notes)
    time.sleep(max(0.0, min(float(args.get("wait_s") or 0.0), 30.0) - (time.monotonic() - started)))
    after = samples(ranks, notes)
    asking.join(RAS_S + 1)
    if answers and answers[0].get("text"):
        answers.append(_ask_ras(ranks))
    found, addresses, records, room = [], set(), [], RECORDS_MAX  # type: list[Any], set[str], list[Any], int
    for i, one in enumerate(ranks):
        near, stuck = links(one.pid)
        addresses.update(near)
        found.append(dict(_row(one, before[i], after[i]), stuck=stuck))
        try:
            record = _record(one)
        except OSError:
            continue
        room -= len(record)
        if room >= 0:
            records.append([one.rank, base64.b64encode(record).decode("ascii")])
    return {
        "ranks": found,
        "addresses": sorted(addresses),
        "notes": sorted(notes)[:4],
        "left_out": len(every) - len(ranks),
        "ras": [str(one.get("text") or "") for one in answers],
        "records": records,
    }
