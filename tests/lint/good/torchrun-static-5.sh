#!/bin/bash
i=0
for host in $(cat hosts.txt); do
    ssh -p 44222 "$host" bash -s -- "$i" <<'REMOTE' &
cd /data/train
torchrun --nnodes 4 --nproc-per-node 8 --node-rank $1 --master-addr gpu01 train.py
REMOTE
    i=$((i + 1))
done
wait
