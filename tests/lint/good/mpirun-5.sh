#!/bin/bash
set -u
NP=${NP:-16}
HOSTS=${HOSTS:-gpu01:8,gpu02:8}
EXTRA=()
for name in $(compgen -e | grep '^NCCL_'); do
    EXTRA+=(-x "$name")
done
timeout 600 mpirun -np "$NP" -H "$HOSTS" "${EXTRA[@]}" -x UCX_NET_DEVICES=mlx5_0:1 python bench.py
