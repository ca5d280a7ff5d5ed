#!/bin/bash
torchrun --nnodes 2 --nproc-per-node 8 --node-rank 1 --master-addr gpu01 --master-port 29500 train.py --epochs 3
