#!/bin/bash
export MASTER_PORT = 29500
NCCL_DEBUG =INFO
WORLD_SIZE = 16
python train.py
