#!/usr/bin/env python3
"""Stands in for perftest's ib_write_bw and ib_write_lat on lab nodes, which have no RDMA.

It takes their options, meets the other end over TCP as they do, and prints their table (perftest 4.5,
src/perftest_parameters.c). What it prints is the lesser of what both ends' /etc/lab-verbs say of their
device: ``mlx5_0=385.4`` in Gbit/s, ``mlx5_0=dead`` for an HCA that gives up.
"""

import argparse
import os
import socket
import sys
import time

BW = "ib_write_bw" in sys.argv[0]
RULE = "-" * 87

parser = argparse.ArgumentParser()
for short in "-d", "-i", "-p", "-q", "-s", "-D", "-n":
    parser.add_argument(short)
parser.add_argument("-F", action="store_true")
parser.add_argument("--report_gbits", action="store_true")
parser.add_argument("host", nargs="?")
args = parser.parse_args()
if not os.path.isdir(f"/sys/class/infiniband/{args.d}"):
    print(f" IB device {args.d} not found\n Unable to find the Infiniband/RoCE device")
    sys.exit(1)
with open("/etc/lab-verbs") as file:
    own = dict(line.strip().split("=") for line in file)[args.d]
if args.host is None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", int(args.p)))
        listener.listen(1)
        print("\n************************************\n* Waiting for client to connect... *")
        other = listener.accept()[0]
else:
    other = socket.create_connection((args.host, int(args.p)), 5)
other.sendall(f"{own}\n".encode())
theirs = other.makefile().readline().strip()
print(f"{RULE}\n                    RDMA_Write {'BW' if BW else 'Latency'} Test")
print(f" Dual-port       : OFF\t\tDevice         : {args.d}")
print(f" local address: LID 0000 QPN 0x0107 PSN 0x2ea0d2\n{RULE}")
if "dead" in (own, theirs):
    side = "server" if args.host is None else "client"
    sys.stderr.write(f" Completion with error at {side}\n Failed status 12: wr_id 0 syndrom 0x81\n")
    sys.exit(1)
time.sleep(0.05)
if BW:
    rate = min(float(own), float(theirs))
    print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
    print(f" 65536      1470080          0.00               {rate:<7.2f}\t\t   0.735034")
else:
    print(
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
        "   99% percentile[usec]   99.9% percentile[usec] "
    )
    print(
        " 2       1000          1.80           4.10         1.91     \t       1.93        \t0.07   \t\t2.21"
    )
print(RULE)
