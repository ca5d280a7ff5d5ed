#!/bin/bash
# One node, many GPUs.
source ~/miniconda3/etc/profile.d/conda.sh
conda activate train

export CUDA_VISIBLE_DEVICES=0,1,2,3
export TOKENIZERS_PARALLELISM=false
MASTER_PORT=$((29500 + RANDOM % 1000))

torchrun --standalone --nproc_per_node=4 train.py \
    --batch-size 16 \
    --lr 3e-4 2>&1 | tee "logs/$(date +%F).log"
