#!/bin/bash
torchrun --nnodes=1 --nproc_per_node=8 $SCRIPT_FILE --num_gpus 8
