#!/bin/bash
# ./run.sh RANK
set -o errexit -o nounset
readonly RANK_OF_MACHINE=$1
if (( RANK_OF_MACHINE > 1 )); then
    echo "two machines only" >&2
    exit 1
fi
accelerate launch --num_machines 2 --num_processes 8 --machine_rank "$RANK_OF_MACHINE" \
    --main_process_ip gpu01 --main_process_port 29500 --use_deepspeed --zero_stage 3 \
    --deepspeed_multinode_launcher standard train.py
