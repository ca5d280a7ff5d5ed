#!/bin/bash
grep = cluster.env | while read -r line; do
    export NCCL_SOCKET_IFNAME=bond0
done
(export NCCL_IB_HCA=mlx5_0)
torchrun --standalone --nproc-per-node 8 train.py
