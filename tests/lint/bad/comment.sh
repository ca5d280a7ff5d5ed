#!/bin/bash
torchrun --standalone \
    # --nproc-per-node 4 \
    --nproc-per-node 8 \
    train.py
