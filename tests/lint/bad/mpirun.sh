#!/bin/bash
export NCCL_SOCKET_IFNAME=bond0
mpirun -np 16 -H gpu01,gpu02 -x RANK=$OMPI_COMM_WORLD_RANK python train.py
