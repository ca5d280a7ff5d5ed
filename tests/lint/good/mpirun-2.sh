#!/bin/bash
export MASTER_ADDR=gpu01
export MASTER_PORT=29500
mpirun --allow-run-as-root --hostfile hostfile -np 16 -x MASTER_ADDR -x MASTER_PORT bash -c \
    'RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE python train.py'
