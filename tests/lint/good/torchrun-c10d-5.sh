#!/bin/bash
GPUS_PER_NODE=8
NNODES=4
WORLD_SIZE=$((GPUS_PER_NODE * NNODES))

DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --rdzv_backend c10d \
    --rdzv_endpoint ${MASTER_ADDR:?}:${MASTER_PORT:-29500} --rdzv_id ${JOB_ID:-0}"

MODEL_ARGS="
    --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 2
    --num-layers 48
"

echo "starting $WORLD_SIZE processes"
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $MODEL_ARGS $EXTRA_ARGS
