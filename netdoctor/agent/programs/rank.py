# mypy: ignore-errors
"""The program of one rank. Its text travels to the nodes; nothing here imports it.

It runs in the job's interpreter (Python 3.8 and up) with nothing but the standard library and torch. It
says what happens as lines of JSON on its stdout and takes its steps as lines of JSON from its stdin, whose
end is its own.
"""

import datetime
import inspect
import json
import os
import re
import socket
import statistics
import sys
import threading
import time

CONFIG = globals().get("CONFIG") or {}
ALIVE_S = 0.5
DTYPE_BYTES = 4
# Width of the layers that are trained: 1 MiB each.
TRAINED_SIDE = 512
# Operations that a group is to do in its time, about.
STEPS = 10
# Each rank brings the whole numbers 1 to PERIOD in turn, and begins at another one. float32 adds them up
# exactly, in any order, while the sum stays under 2^24: over up to 132,000 ranks.
PERIOD = 127

# What NCCL says with NCCL_DEBUG=INFO: so much of it is looked at, and so many different words are kept.
SAID_BYTES = 1 << 20
SAID_WORDS = 8
NCCL_SAYS = {
    # init.cc, commAlloc: "NCCL INFO Using network IB"
    "networks": re.compile(r"NCCL INFO (?:\S+ )?Using network ([\w ./()-]{1,40})"),
    # transport/*.cc: "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", or P2P/CUMEM/read, SHM/direct
    "via": re.compile(r"\] via ((?:NET/[A-Za-z_]\w{0,30}|P2P|SHM|NVLS)(?=[/\s])(?:[^\s]{0,40}/GDRDMA)?)"),
    # graph/search.cc, ncclTopoPrintGraph: "bw 240.0/240.0, type NVL/PIX, sameChannels 1"
    "links": re.compile(r", type (\w{1,8})/\w{1,8}, sameChannels"),
}

# The functions of torch.distributed that do it, the newest name first, and last those over lists, which are
# all that gloo had before torch 2.2.
FUNCTIONS = {
    "all-reduce": ("all_reduce",),
    "all-gather": ("all_gather_single", "all_gather_into_tensor", "_all_gather_base", "all_gather"),
    "reduce-scatter": (
        "reduce_scatter_single",
        "reduce_scatter_tensor",
        "_reduce_scatter_base",
        "reduce_scatter",
    ),
    "all-to-all": ("all_to_all_single",),
    "broadcast": ("broadcast",),
    "send-recv": ("batch_isend_irecv",),
}
# Of these the size is that of all ranks' pieces together (nccl-tests, doc/PERFORMANCE.md).
IN_PIECES = ("all-gather", "reduce-scatter", "all-to-all")
# "ProcessGroupGloo does not support reduce_scatter" (ProcessGroupGloo.cpp), "Backend gloo does not support
# alltoall" (Backend.hpp), "no support for _allgather_base in Gloo process group". Before anything is sent.
REFUSES = re.compile(
    r"(?:ProcessGroup|Backend )\w+ does not support \w|no support for \w+ in \w+ process group"
)

# So many ranks are named whose values came out wrong; so much of an operation's time goes to each small size.
SENDERS = 16
LATENCY_SHARE = 0.05

_out = 1
_lock = threading.Lock()
_now = {"stage": "start", "step": None, "done": 0}


def say(**message):
    data = (json.dumps(message) + "\n").encode("ascii")
    with _lock:
        while data:
            data = data[os.write(_out, data) :]


def stage(name):
    _now["stage"] = name
    say(event="stage", stage=name)


def dialling():
    """Addresses that this process waits for an answer from: sockets in SYN_SENT of /proc/net/tcp.

    ``1: 0100007F:8A22 0200000A:7148 02 00000001:...`` holds the far end as bytes in the machine's order.
    """
    inodes = set()
    found = []
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                link = os.readlink("/proc/self/fd/" + name)
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
        for table in ("tcp", "tcp6"):
            with open("/proc/self/net/" + table) as file:
                for line in file.readlines()[1:]:
                    words = line.split()
                    if len(words) > 9 and words[3] == "02" and words[9] in inodes:
                        found.append(far_end(words[2]))
    except (OSError, ValueError, IndexError):
        pass
    return found[:32]


def far_end(text):
    raw, port = text.split(":")
    data = bytes.fromhex(raw)
    if sys.byteorder == "little":
        data = b"".join(data[i : i + 4][::-1] for i in range(0, len(data), 4))
    family = socket.AF_INET if len(data) == 4 else socket.AF_INET6
    return [socket.inet_ntop(family, data), int(port, 16)]


def beat():
    while True:
        time.sleep(ALIVE_S)
        waiting = dialling() if _now["stage"] in ("store", "group", "mesh") else []
        try:
            say(event="alive", dialling=waiting, **_now)
        except OSError:
            os._exit(0)


def report_error(error, end=None):
    text = " ".join(str(error).split())[:600]
    say(event="error", stage=_now["stage"], kind=type(error).__name__, text=text, end=end)


def busy_s():
    """Seconds that the threads of this process have run, or were ready and waited for a CPU, together."""
    total = 0.0
    try:
        for name in os.listdir("/proc/self/task"):
            try:
                with open("/proc/self/task/%s/schedstat" % name) as file:
                    ran, waited = file.read().split()[:2]
            except OSError:
                continue
            total += (int(ran) + int(waited)) / 1e9
    except (OSError, ValueError):
        pass
    return total


def brought(position):
    """What the rank at this place among its group brings to a sum: one period."""
    return [1 + (position + i) % PERIOD for i in range(PERIOD)]


def sums(world):
    """What `world` ranks bring together: one period."""
    rounds, rest = divmod(world, PERIOD)
    each = rounds * PERIOD * (PERIOD + 1) // 2
    return [each + sum(1 + (position + i) % PERIOD for position in range(rest)) for i in range(PERIOD)]


def marked(src, dst):
    """What one rank has for another: one period of numbers that tell both and the place. As exact as sums."""
    return [src * PERIOD + (dst + i) % PERIOD for i in range(PERIOD)]


def nodes_of(runs):
    """Ranks of each node. runs: [how many nodes, ranks of each] in the order of ranks: as short as may be."""
    found, first = [], 0
    for many, each in runs:
        for _ in range(many):
            found.append(list(range(first, first + each)))
            first += each
    return found


def groups_of(world, stride, size):
    """Ranks in groups of `size` that are `stride` apart: together all of the world."""
    starts = [first + at for first in range(0, world, stride * size) for at in range(stride)]
    return [list(range(start, start + stride * size, stride)) for start in starts]


def hear_nccl():
    """Have NCCL write what it chooses into memory of this process; its descriptor, None where that cannot be.

    Before anything asks NCCL. Nothing is left on the node, and what the job's own NCCL_DEBUG_FILE names stays
    as it is.
    """
    os.environ.pop("NCCL_DEBUG_FILE", None)
    try:
        fd = os.memfd_create("nccl")
    except (AttributeError, OSError):
        return None
    path = "/proc/self/fd/%d" % fd
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,GRAPH", NCCL_DEBUG_FILE=path)
    return fd


def nccl_said(fd):
    """What NCCL took, by the keys of NCCL_SAYS: different words in their order."""
    try:
        text = os.pread(fd, SAID_BYTES, 0).decode("ascii", "replace") if fd is not None else ""
    except OSError:
        text = ""
    found = {}
    for name, pattern in NCCL_SAYS.items():
        words = []
        for word in pattern.findall(text):
            word = re.sub(r"^(NET/\w+)\S*/GDRDMA$", r"\1/GDRDMA", word.strip())
            if word not in words and len(words) < SAID_WORDS:
                words.append(word)
        found[name] = words
    return found


class Operation:
    """A collective over a group: how it is called, what this rank brings to it, and what has to come out."""

    def __init__(self, owner, name, ranks, group=None):
        self.owner = owner
        self.dist = owner.dist
        self.name = name
        self.ranks = list(ranks)
        self.world = len(self.ranks)
        self.position = self.ranks.index(owner.rank)
        self.after = (self.position + 1) % self.world
        self.before = (self.position - 1) % self.world
        self.group = group
        self.function = FUNCTIONS[name][0]

    def refused(self):
        """Take the first function that the backend offers; what it says of the last where it offers none."""
        text = "this torch has no %s" % FUNCTIONS[self.name][-1]
        for name in FUNCTIONS[self.name]:
            if not hasattr(self.dist, name):
                continue
            self.function = name
            try:
                self.run(*self.buffers(self.world))
                return None
            except (RuntimeError, NotImplementedError) as error:
                text = " ".join(str(error).split())[:200]
                if not REFUSES.search(text):
                    raise
        return text

    def count(self, size):
        """How many values so many bytes are, as many for each rank where they are pieces."""
        count = max(size // DTYPE_BYTES, 1)
        return max(count // self.world, 1) * self.world if self.name in IN_PIECES else count

    def buffers(self, count):
        """(what goes out, what comes in), all zero; the same where it works in place."""
        out = count // self.world if self.name == "all-gather" else count
        into = count // self.world if self.name == "reduce-scatter" else count
        one = self.owner.filled(out, 0.0)
        return one, one if self.name in ("all-reduce", "broadcast") else self.owner.filled(into, 0.0)

    def run(self, out, into):
        """Once. Sums go into `into`, too."""
        call, group = getattr(self.dist, self.function), self.group
        if self.name == "all-reduce":
            call(into, group=group)
        elif self.name == "broadcast":
            call(into, self.ranks[0], group=group)
        elif self.name == "send-recv":
            one = self.dist.P2POp(self.dist.isend, out, self.ranks[self.after], group)
            two = self.dist.P2POp(self.dist.irecv, into, self.ranks[self.before], group)
            for work in call([one, two]):
                work.wait()
        elif self.function == "all_gather":
            call(list(into.chunk(self.world)), out, group=group)
        elif self.function == "reduce_scatter":
            call(into, list(out.chunk(self.world)), group=group)
        else:
            call(into, out, group=group)

    def brought(self, count):
        """What goes out when values are verified."""
        name, here, tiled = self.name, self.position, self.owner.tiled
        if name in ("all-reduce", "reduce-scatter"):
            return tiled(brought(here), count)
        if name == "all-gather":
            return tiled(marked(here, 0), count // self.world)
        if name == "all-to-all":
            pieces = [tiled(marked(here, dst), count // self.world) for dst in range(self.world)]
            return self.owner.torch.cat(pieces)
        if name == "broadcast":
            return tiled(marked(0, 0), count) if here == 0 else self.owner.filled(count, -1.0)
        return tiled(marked(here, self.after), count)

    def expected(self, count):
        """What has to come in then."""
        name, here, tiled, world = self.name, self.position, self.owner.tiled, self.world
        if name == "all-reduce":
            return tiled(sums(world), count)
        if name == "reduce-scatter":
            return tiled(sums(world), count)[here * (count // world) :][: count // world]
        if name in IN_PIECES:
            dst = here if name == "all-to-all" else 0
            return self.owner.torch.cat([tiled(marked(src, dst), count // world) for src in range(world)])
        return tiled(marked(0, 0) if name == "broadcast" else marked(self.before, here), count)

    def wrong(self, count):
        """How many values are not what they should be, the first of them, and the ranks that sent them."""
        out = self.brought(count)
        into = self.buffers(count)[1].fill_(-1.0)
        if self.name in ("all-reduce", "broadcast"):
            into = out
        self.run(out, into)
        self.owner.sync()
        expected = self.expected(count)
        bad = (into != expected).nonzero().flatten()
        if not len(bad):
            return {"wrong": 0, "first_wrong": None}
        first = int(bad[0].item())
        senders = []
        if self.name in ("all-gather", "all-to-all"):
            piece = count // self.world
            senders = [src for src in range(self.world) if bool(((bad // piece) == src).any())]
        elif self.name in ("broadcast", "send-recv"):
            senders = [0 if self.name == "broadcast" else self.before]
        return {
            "wrong": len(bad),
            "first_wrong": [first, float(into[first].item()), float(expected[first].item())],
            "senders": [self.ranks[src] for src in senders[:SENDERS]],
        }


class Rank:
    """What the steps share."""

    def __init__(self, torch, dist):
        self.torch = torch
        self.dist = dist
        self.rank = int(CONFIG.get("rank", 0))
        self.world = int(CONFIG.get("world", 1))
        self.backend = str(CONFIG.get("backend", "gloo"))
        self.cuda = self.backend == "nccl"
        self.device = torch.device("cuda", int(CONFIG.get("device", 0))) if self.cuda else torch.device("cpu")
        self.groups = {}
        self.group_s = 30.0
        self.store = None
        self.listener = None
        self.nccl_log = None

    def timeout(self, seconds):
        return datetime.timedelta(seconds=seconds)

    def sync(self):
        if self.cuda:
            self.torch.cuda.synchronize(self.device)

    # Steps. Each returns what its "result" event holds.

    def host(self, step):
        """Open the store on the job's own address, and on its port where that is free: rank 0's work."""
        if self.rank != 0:
            return {}
        address, port = step["address"], int(step["port"])
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        busy = None
        for number in (port, 0):
            s = socket.socket(family, socket.SOCK_STREAM)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((address, number))
                s.listen(1024)
            except OSError as error:
                s.close()
                busy = str(error)
                if number == 0:
                    raise
                continue
            break
        port = int(s.getsockname()[1])
        timeout = self.timeout(float(step["store_s"]))
        options = {"timeout": timeout, "wait_for_workers": False}
        try:
            # On the tested address only; by itself the store listens on every one.
            self.store = self.dist.TCPStore(
                address, port, self.world, True, master_listen_fd=s.fileno(), use_libuv=False, **options
            )
            self.listener = s.detach()
        except TypeError:  # a torch that knows no such argument
            s.close()
            self.store = self.dist.TCPStore(address, port, self.world, True, **options)
        return {"port": port, "busy": busy}

    def join(self, step):
        """Reach the store, then form the group; the two are told apart in what a failure says."""
        dist = self.dist
        seconds = float(step["store_s"])
        stage("store")
        if self.store is None:
            self.store = dist.TCPStore(
                step["address"],
                int(step["port"]),
                self.world,
                False,
                timeout=self.timeout(seconds),
                wait_for_workers=False,
            )
        # Whoever comes last tells all: a key of each rank would be asked for by every other.
        if self.store.add("here", 1) == self.world:
            self.store.set("all", "1")
        stage("peers")
        self.store.wait(["all"], self.timeout(seconds))
        stage("group")
        self.group_s = float(step.get("group_s", seconds))
        store = dist.PrefixStore(str(step["name"]), self.store)
        dist.init_process_group(
            self.backend,
            store=store,
            rank=self.rank,
            world_size=self.world,
            timeout=self.timeout(self.group_s),
        )
        stage("mesh")
        one = self.torch.ones(1, device=self.device)
        dist.all_reduce(one)
        self.sync()
        stage("ready")
        return {"sum": float(one.item())}

    def group(self, ranks, **options):
        """The process group of some ranks. options: of new_group, which all ranks have to call if empty."""
        key = tuple(ranks)
        if key not in self.groups:
            # By itself a new group waits for the backend's 10 or 30 minutes.
            self.groups[key] = self.dist.new_group(list(key), timeout=self.timeout(self.group_s), **options)
        return self.groups[key]

    def group_among(self, groups):
        """The ranks of that group which this one is in, and its process group where they are several."""
        local = next(ranks for ranks in groups if self.rank in ranks)
        if "use_local_synchronization" in inspect.signature(self.dist.new_group).parameters:
            # Made by its own ranks: every group made by all is too much for the store of a large world.
            return local, self.group(local, use_local_synchronization=True) if len(local) > 1 else None
        for ranks in groups:  # torch before 2.1
            if len(ranks) > 1:
                self.group(ranks)
        return local, self.groups.get(tuple(local))

    def greatest(self, value, group=None):
        """The largest value over the ranks of a group: all of them decide alike."""
        box = self.torch.tensor([float(value)], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(box, op=self.dist.ReduceOp.MAX, group=group)
        return float(box.item())

    def burst(self, operation, buffers, count):
        """Seconds that `count` of them take on this rank, from a common start."""
        start = self.torch.zeros(1, device=self.device)
        self.dist.all_reduce(start, group=operation.group)
        self.sync()
        began = time.perf_counter()
        for _ in range(count):
            operation.run(*buffers)
            _now["done"] += 1
        self.sync()
        return time.perf_counter() - began

    def filled(self, size, value):
        return self.torch.empty(size, device=self.device, dtype=self.torch.float32).fill_(value)

    def tiled(self, values, size):
        """These values over and over, `size` of them."""
        one = self.torch.tensor(values, device=self.device, dtype=self.torch.float32)
        return one.repeat(-(-size // len(values)))[:size]

    def allreduce(self, step):
        """All-reduces of all ranks, inside each node, or without some."""
        ranks, group = list(range(self.world)), None
        if step.get("inside"):
            ranks, group = self.group_among(nodes_of(step["inside"]))
        elif step.get("without"):
            ranks = sorted(set(ranks).difference(step["without"]))
            group = self.group(ranks)
        if self.rank not in ranks or len(ranks) < 2:
            return {"rows": []}
        rows = self.sweep(step, Operation(self, "all-reduce", ranks, group))
        return {"rows": rows, "nccl": nccl_said(self.nccl_log) if self.cuda else {}}

    def collective(self, step):
        """One operation over all ranks, or what the backend says where it does not offer it."""
        operation = Operation(self, step["op"], range(self.world))
        stage(step["op"])
        refused = operation.refused()
        rows = [] if refused else self.sweep(step, operation)
        stage("ready")
        return {"rows": rows, "refused": refused or ""}

    def side_by_side(self, step):
        """One operation in every group at once, for about `seconds`, of a size of which a tenth of them is
        enough in the slowest group; times are the slowest rank's of each group."""
        ranks, group = self.group_among(groups_of(self.world, int(step["stride"]), int(step["size"])))
        operation = Operation(self, step["op"], ranks, group)
        stage(step["op"])
        refused = operation.refused()
        if refused:
            stage("ready")
            return {"rows": [], "refused": refused}
        seconds, least, most = (float(step[name]) for name in ("seconds", "least_bytes", "most_bytes"))
        for _ in range(2):  # the first has connections to make
            took = self.greatest(self.burst(operation, operation.buffers(operation.count(int(least))), 1))
        count = operation.count(int(min(max(least * seconds / STEPS / max(took, 1e-6), least), most)))
        row = dict(operation.wrong(count), size=count * DTYPE_BYTES, iterations=1)
        buffers, times = operation.buffers(count), []
        self.greatest(self.burst(operation, buffers, 1))  # all begin together
        while sum(times) < seconds and len(times) < 1000:
            times.append(self.greatest(self.burst(operation, buffers, 1), group))
        row.update(median_s=statistics.median(times), least_s=min(times), most_s=max(times))
        stage("ready")
        return {"rows": [dict(row, batches=len(times))], "refused": ""}

    def sweep(self, step, operation):
        """Sizes from small to large, as many as fit the time; times are the slowest rank's.

        Up to `latency_bytes` all are measured, each in a small part of the time.
        """
        group = operation.group
        began = time.perf_counter()
        budget = float(step["budget_s"])
        fewest, batches = int(step.get("batches", 3)), 5
        small = int(step.get("latency_bytes", 0)) // DTYPE_BYTES
        least = int(step.get("least", 1))
        rows = []
        counts = sorted({operation.count(int(size)) for size in step["sizes"]})
        rate = None  # seconds per value of the largest size so far
        for at, count in enumerate(counts):
            left = self.greatest(budget - (time.perf_counter() - began), group)
            # What latency rules says little of a rate: the first beyond is tried where one operation fits.
            first = count > small and (not rows or rows[-1]["size"] <= small * DTYPE_BYTES)
            # Warm-up, verification and the batches.
            needed = (2.5 + (1 if first else fewest * least)) * (rate or 0.0) * count
            if rows and count > small and (needed > left or left <= 0):
                break
            row = dict(operation.wrong(count), size=count * DTYPE_BYTES)
            buffers = operation.buffers(count)
            warm = self.greatest(self.burst(operation, buffers, 1), group)
            # Later sizes are the ones that count: each takes its share of what is left.
            share = max(left, 0.0) / max(min(len(counts) - at, 3), 1)
            share = min(share, float(step.get("each_s", share)))
            most = int(step.get("iterations", 20))
            if count <= small:
                share, most = min(share, budget * LATENCY_SHARE), 10 * most
            each = max(warm, 1e-6)
            few = max(min(least, int(left / (fewest * each))), 1) if first else least
            rounds = int(max(fewest, min(batches, share / (few * each))))
            per = int(max(few, min(most, share / (rounds * each))))
            times = []
            for _ in range(rounds):
                times.append(self.greatest(self.burst(operation, buffers, per) / per, group))
            rate = statistics.median(times) / count
            row.update(median_s=statistics.median(times), least_s=min(times), most_s=max(times))
            row.update(batches=rounds, iterations=per)
            rows.append(row)
            del buffers
        return rows

    def train(self, step):
        """Steps of a small data-parallel training on some ranks: the seconds of each on the slowest of them.

        Little is computed, and as many gradients are exchanged as asked for, in DDP's own buckets.
        """
        ranks = [rank for first, count in step["runs"] for rank in range(first, first + count)]
        group = self.group(ranks)
        if self.rank not in ranks:
            return {}
        stage("training")
        torch, side = self.torch, TRAINED_SIDE
        layers = max(int(step["bytes"]) // (side * side * DTYPE_BYTES), 1)
        parts = [torch.nn.Linear(side, side, bias=False) for _ in range(layers)]
        model = torch.nn.Sequential(*parts).to(self.device)
        batch = self.filled(8 * side, 0.5).view(8, side)

        def once(model):
            began = time.perf_counter()
            model(batch).sum().backward()
            model.zero_grad()
            self.sync()
            _now["done"] += 1
            return time.perf_counter() - began

        once(model)
        alone = once(model)
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
        once(model)  # its buckets are made in the first step
        warm = self.greatest(once(model), group)
        count = int(max(3, min(100, float(step["seconds"]) / max(warm, 1e-6))))
        times = [self.greatest(once(model), group) for _ in range(count)]
        stage("ready")
        return {"steps": times, "alone_s": self.greatest(alone, group)}

    def pairs(self, step):
        """Directed pairs at once, each in its own time: the receiver asks for messages and times them."""
        self.sync()
        one = self.torch.zeros(1, device=self.device)
        self.dist.all_reduce(one)
        self.sync()
        for src, dst in step["pairs"]:
            if self.rank == src:
                return self.give(dst)
            if self.rank == dst:
                return self.take(src, float(step["seconds"]), int(step["most_bytes"]))
        return {}

    def give(self, dst):
        command = self.torch.zeros(2, dtype=self.torch.int64, device=self.device)
        buffer = None
        before, began = busy_s(), time.perf_counter()
        while True:
            self.dist.recv(command, dst)
            size, count = (int(value) for value in command.tolist())
            if size == 0:
                return {"busy": (busy_s() - before) / max(time.perf_counter() - began, 1e-6)}
            if buffer is None or buffer.numel() != size // DTYPE_BYTES:
                buffer = self.torch.zeros(size // DTYPE_BYTES, device=self.device)
            for _ in range(count):
                self.dist.send(buffer, dst)
                _now["done"] += 1
            self.sync()

    def take(self, src, seconds, most_bytes):
        torch, dist = self.torch, self.dist

        def ask(size, count):
            dist.send(torch.tensor([size, count], dtype=torch.int64, device=self.device), src)

        def fetch(size, count):
            buffer = torch.empty(size // DTYPE_BYTES, device=self.device)
            self.sync()
            # From the question on: counted from the first message on, what arrived while this process waited
            # for a CPU would seem to have taken no time.
            began = time.perf_counter()
            ask(size, count)
            for _ in range(count):
                dist.recv(buffer, src)
                _now["done"] += 1
            self.sync()
            return time.perf_counter() - began

        before, start = busy_s(), time.perf_counter()
        end = start + seconds
        size = 64 * 1024
        fetch(size, 1)  # pays for the connection
        took = fetch(size, 1)
        while size < most_bytes and took < seconds / 20.0:
            size = min(size * 4, most_bytes)
            took = fetch(size, 1)
        rates = []
        count = 1
        while True:
            left = end - time.perf_counter()
            # A shaper lets the first megabytes pass at full speed: no question is much larger than the last.
            count = int(max(1, min(50, 2 * count, left / max(took, 1e-6) / 4.0)))
            took = fetch(size, count) / count
            rates.append(size / took)
            if time.perf_counter() + took * 2 > end or len(rates) >= 50:
                break
        ask(0, 0)
        self.sync()
        return {
            "median": statistics.median(rates),
            "least": min(rates),
            "most": max(rates),
            "busy": (busy_s() - before) / max(time.perf_counter() - start, 1e-6),
        }


def main():
    global _out
    _out = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no message
    watcher = threading.Thread(target=beat)
    watcher.daemon = True
    watcher.start()
    stage("import")
    nccl_log = hear_nccl() if CONFIG.get("backend") == "nccl" else None
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:
        name = getattr(error, "name", None)
        say(event="error", stage="import", kind=type(error).__name__, text=str(error)[:600], name=name)
        return 3
    if not dist.is_available():
        say(event="error", stage="import", kind="Unavailable", text="torch without distributed", name=None)
        return 3
    torch.set_num_threads(1)
    try:
        rank = Rank(torch, dist)
        rank.nccl_log = nccl_log
        if rank.cuda:
            torch.cuda.set_device(rank.device)
            torch.zeros(1, device=rank.device)
    except Exception as error:
        _now["stage"] = "device"
        report_error(error)
        return 4
    _now["stage"] = "imported"
    say(event="imported", torch=torch.__version__, end="imported")
    for line in sys.stdin.buffer:
        step = json.loads(line.decode())
        if step["do"] == "end":
            break
        _now.update(step=step["step"], done=0)
        try:
            result = getattr(rank, step["do"])(step)
        except Exception as error:
            report_error(error)
            return 5
        say(event="result", step=step["step"], result=result, end=step["step"])
    if dist.is_initialized():
        stage("end")
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except BaseException as error:
        report_error(error)
        code = 6
    # Not sys.exit: threads of the libraries may keep an interpreter from ending.
    os._exit(code)
