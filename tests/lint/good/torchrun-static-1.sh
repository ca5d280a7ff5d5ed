#!/bin/bash
# ./run.sh 0 on the first node, ./run.sh 1 on the second
NODE_RANK=$1
MASTER_ADDR=10.0.0.1
MASTER_PORT=29500

torchrun \
    --nnodes=2 \
    --nproc_per_node=8 \
    --node_rank=$NODE_RANK \
    --master_addr=$MASTER_ADDR \
    --master_port=$MASTER_PORT \
    train.py
