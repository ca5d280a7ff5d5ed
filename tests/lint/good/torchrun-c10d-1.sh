#!/usr/bin/env bash
# The same line on every node.
set -euo pipefail

export NCCL_DEBUG=WARN
export OMP_NUM_THREADS=8

torchrun \
    --nnodes 2 \
    --nproc-per-node 8 \
    --rdzv-id finetune-7b \
    --rdzv-backend c10d \
    --rdzv-endpoint gpu01:29500 \
    train.py --config configs/7b.yaml
