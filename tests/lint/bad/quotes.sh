#!/bin/bash
export MASTER_ADDR='$(hostname)'
torchrun --nnodes 2 --nproc-per-node 8 --node-rank $1 --master-addr '$MASTER_ADDR' train.py
