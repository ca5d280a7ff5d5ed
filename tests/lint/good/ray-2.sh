#!/bin/bash
# On every worker.
HEAD=${1:?head node}
export NCCL_SOCKET_IFNAME=bond0
ulimit -n 65536
ray start --address="$HEAD:6379" --num-gpus=8 --block
