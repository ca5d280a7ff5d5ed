#!/bin/bash
# Elastic: two to four nodes, from a laptop over ssh.
set -eu
nodes=(gpu01 gpu02 gpu03 gpu04)
head=${nodes[0]}
trap 'for n in "${nodes[@]}"; do ssh "$n" pkill -u "$USER" torchrun || true; done' INT TERM

for node in "${nodes[@]}"; do
    ssh "$node" "cd $PWD && source venv/bin/activate && torchrun --nnodes 2:4 --nproc-per-node gpu \
        --rdzv-id run42 --rdzv-backend c10d --rdzv-endpoint $head:29500 train.py" &
done
wait
