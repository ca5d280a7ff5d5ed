#!/bin/bash
nproc_per_node=4
nnodes=2

CUDA_VISIBLE_DEVICES=0,1,2,3 \
torchrun \
    --nnodes=$nnodes --nproc_per_node=$nproc_per_node \
    --node_rank=0 \
    --master_addr=127.0.0.1 --master_port 29500 \
    sft.py --gradient_accumulation_steps $(expr 32 / $nproc_per_node / $nnodes)
