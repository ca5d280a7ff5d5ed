#!/bin/bash
torchrun --nnodes=1:2 --nproc-per-node 1 --rdzv_backend c10d --rdzv_endpoint=localhost:6000 t.py
