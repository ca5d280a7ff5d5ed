"""A stand-in for the RAS thread of a NCCL process: its client protocol and answers, with no job behind it.

Written after NVIDIA/nccl src/ras/client_support.cc (rasClientEventLoop, rasClientRunInit, rasClientRunComms,
rasDumpCommsToJSON) of 2.30.7, and of 2.24.3 for `--release 2.24`, which has text alone. Standard library
only, as it runs on nodes of the lab:

    python3 ras_server.py --port 28028 --fault dead --nodes 10.0.0.1,10.0.0.2
"""
# ruff: noqa: UP031  the formats are those of NCCL's printf

import argparse
import json
import os
import socketserver

PER_NODE = 4
HASH = "27a079b828ff1a75"
FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
FAULTS = ("none", "dead", "silent", "behind", "sequence", "error")
CULPRIT = 5


def process(nodes, rank):
    return {"host": nodes[rank // PER_NODE], "pid": 4000 + rank, "gpu": rank % PER_NODE}


def as_json(nodes, fault):
    size = len(nodes) * PER_NODE
    gone = [CULPRIT] if fault in ("dead", "silent") else []
    ranks = []
    for rank in (r for r in range(size) if r not in gone):
        counts = dict.fromkeys(FUNCTIONS, 0) | {"Broadcast": 12, "AllReduce": 6650}
        if rank == CULPRIT and fault in ("behind", "sequence"):
            counts["AllReduce"] -= 1
            counts["Broadcast"] += fault == "sequence"
        one = process(nodes, rank)
        ranks.append(
            {
                "rank": rank,
                "host": one["host"],
                "pid": one["pid"],
                "cuda_dev": one["gpu"],
                "nvml_dev": one["gpu"],
                "status": {
                    "init_state": 0,
                    "async_error": 6 if fault == "error" and rank == CULPRIT else 0,
                    "finalize_called": False,
                    "destroy_flag": False,
                    "abort_flag": False,
                },
                "collective_counts": counts,
            }
        )
    missing = [
        {
            "rank": rank,
            "host": process(nodes, rank)["host"],
            "pid": process(nodes, rank)["pid"],
            "cuda_dev": process(nodes, rank)["gpu"],
            "nvml_dev": process(nodes, rank)["gpu"],
            "status": {"unresponsive": True, "considered_dead": fault == "dead"},
        }
        for rank in gone
    ]
    whole = {
        "nccl_version": "2.30.7",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2025-12-19 13:06:53",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0x" + HASH,
                "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
                "size": size,
                "ranks_count": len(ranks),
                "missing_ranks_count": len(missing),
                "ranks": ranks,
                "missing_ranks": missing,
            }
        ],
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 2 if gone else 0},
    }
    return json.dumps(whole, indent=2) + "\n"


def as_text(nodes, fault, old):
    size = len(nodes) * PER_NODE
    one = process(nodes, CULPRIT)
    where = "Process %d on node %s managing GPU %d" % (one["pid"], one["host"], one["gpu"])
    whose = "GPU %d managed by process %d on node %s" % (one["gpu"], one["pid"], one["host"])
    errors = {"none": "OK", "behind": "MISMATCH", "sequence": "MISMATCH", "error": "ERROR"}.get(
        fault, "INCOMPLETE"
    )
    lines = [
        "NCCL version %s compiled with CUDA 13.0" % ("2.24.3" if old else "2.30.7"),
        "CUDA runtime version 13000, driver version 13000",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        "%7d  %9d  %11d  %9d  %7d" % (len(nodes), PER_NODE, 1, size, size),
        "",
        "Communicators... (0.00s)",
        "=============",
        "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
        "%5d  %8d  %8d  %8s  %8d  %8d  %8s  %6s"
        % (0, 1, len(nodes), PER_NODE, size, size, "RUNNING", errors),
        "",
        "Errors",
        "======",
        "",
    ]
    if fault == "silent":
        lines += ["INCOMPLETE", "  Missing communicator data from 1 job process", "  " + where, ""]
    if fault == "dead":
        lines += [
            "DEAD",
            "  1 job process is considered dead (unreachable via the RAS network)",
            "  " + where,
            "",
        ]
    if fault in ("dead", "silent"):
        lines += ["#0-0 (%s) INCOMPLETE" % HASH, "  Missing communicator data from 1 rank"]
        lines += ["  The missing rank: %d" % CULPRIT if old else "  Rank %d -- %s" % (CULPRIT, whose), ""]
    if fault == "error":
        lines += ["#0-0 (%s) ERROR" % HASH, "  Asynchronous error on 1 rank"]
        lines += ["  Rank %d reported Remote process error -- %s" % (CULPRIT, whose), ""]
    lines += ["Warnings", "========", ""]
    if fault in ("behind", "sequence"):
        lines.append("#0-0 (%s) MISMATCH" % HASH)
        for name, usual, own in (
            ("AllReduce", 6650, 6649),
            ("Broadcast", 12, 13 if fault == "sequence" else 12),
        ):
            if usual != own and not (old and name == "Broadcast"):  # which has one count for all
                kind = "collective" if old else name
                lines.append("  Communicator ranks have different %s operation counts" % kind)
                lines.append("  %d ranks have launched up to operation %d" % (size - 1, usual))
                lines.append("  Rank %d has launched up to operation %d -- %s" % (CULPRIT, own, whose))
        lines.append("")
    return "\n".join(lines) + "\n"


class Client(socketserver.StreamRequestHandler):
    def handle(self):
        options, form = self.server.options, "text"
        while True:
            line = self.rfile.readline(4096)
            if not line:
                return
            command = line.decode("latin-1").strip()
            low = command.lower()
            if low.startswith("client protocol "):
                self.wfile.write(b"SERVER PROTOCOL 2\n")
            elif low.startswith("timeout "):
                self.wfile.write(b"OK\n")
            elif low.startswith("set format ") and options.release != "2.24":
                form = low[len("set format ") :]
                self.wfile.write(b"OK\n" if form in ("text", "json") else b"ERROR: Invalid format\n")
            elif low in ("status", "verbose status"):
                old = options.release == "2.24"
                nodes = options.nodes.split(",")
                said = as_json(nodes, options.fault) if form == "json" else as_text(nodes, options.fault, old)
                self.wfile.write(said.encode())
                return
            else:
                self.wfile.write(("ERROR: Unknown command %s\n" % command).encode())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=28028)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--release", choices=("2.24", "2.30"), default="2.30")
    parser.add_argument("--behind", action="store_true", help="serve in the background, and print its pid")
    parser.add_argument("--nodes", default="10.0.0.1,10.0.0.2")
    options = parser.parse_args()
    with Server(("127.0.0.1", options.port), Client) as server:
        server.options = options
        child = os.fork() if options.behind else 0
        if child:
            print("port %d pid %d" % (server.server_address[1], child), flush=True)
            return
        if options.behind:
            os.setsid()
            for stream in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        print("port %d" % server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
