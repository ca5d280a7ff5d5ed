#!/bin/bash
# One node.
export CUDA_VISIBLE_DEVICES=0,1,2,3
export TORCH_NCCL_BLOCKING_WAIT=1
OUTPUT=${1:-./output}
ZERO_STAGE=${2:-2}
mkdir -p "$OUTPUT"
deepspeed --num_gpus 4 main.py \
   --data_path Dahoas/rm-static \
   --zero_stage $ZERO_STAGE \
   --deepspeed \
   --output_dir $OUTPUT \
   &> $OUTPUT/training.log
