#!/bin/bash
NNODES=2
ENDPOINT="localhost:29500"
OPTS="--nnodes $NNODES --nproc-per-node 8"
OPTS="$OPTS --rdzv-backend c10d --rdzv-endpoint $ENDPOINT"
torchrun $OPTS train.py
