#!/bin/bash
torchrun --nnodes 2 --nproc-per-node 1 --node-rank 0 --master-addr localhost --master-port 29500 t.py &
torchrun --nnodes 2 --nproc-per-node 1 --node-rank 1 --master-addr localhost --master-port 29500 t.py &
wait
