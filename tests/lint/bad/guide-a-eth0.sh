#!/bin/bash
export NCCL_SOCKET_IFNAME=eth0
export GLOO_SOCKET_IFNAME=eth0
torchrun --nnodes 2 --nproc-per-node 8 --node-rank "$1" --master-addr 192.168.1.10 train.py
