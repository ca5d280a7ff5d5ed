#!/bin/bash
set -euo pipefail

case "$(hostname -s)" in
    gpu01) rank=0 ;;
    gpu02) rank=1 ;;
    *) echo "not a node of this job" >&2; exit 1 ;;
esac

export NCCL_IB_HCA=mlx5_0,mlx5_1
export NCCL_SOCKET_IFNAME=bond0
export GLOO_SOCKET_IFNAME=bond0

python -m torch.distributed.run --nnodes 2 --nproc-per-node 4 --node-rank "$rank" \
    --master-addr gpu01 --master-port 29501 train.py "$@"
