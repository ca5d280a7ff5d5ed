#!/bin/bash
export MASTER_PORT=29500
if [ "$RANK" -eq 0 ]; then
    ray start --head --port 6379 --num-gpus 8
else
    ray start --address "$MASTER_ADDR:6379" --num-gpus 8
fi
[ "$RANK" -eq 0 ] && ray job submit --address http://127.0.0.1:8265 -- python train.py
