#!/bin/bash
NCCL_SOCKET_IFNAME=bond0
torchrun --standalone --nproc-per-node 8 train.py
