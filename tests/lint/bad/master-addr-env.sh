#!/bin/bash
export MASTER_ADDR=gpu01
export MASTER_PORT=29500
torchrun --nnodes 2 --nproc_per_node 8 --node_rank $1 train.py
