#!/bin/bash
# In a pod of a PyTorchJob: the operator sets everything but the processes.
: "${MASTER_ADDR:?}" "${MASTER_PORT:?}" "${RANK:?}" "${WORLD_SIZE:?}"

export PYTHONUNBUFFERED=1
torchrun --nnodes "$WORLD_SIZE" --nproc_per_node "${NPROC_PER_NODE:-8}" --node_rank "$RANK" \
    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" train.py
