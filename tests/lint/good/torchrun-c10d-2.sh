#!/bin/bash
usage() {
    echo "usage: $0 HEAD_NODE [NNODES]" >&2
    exit 2
}

[[ $# -ge 1 ]] || usage
HEAD=$1
NNODES=${2:-4}
GPUS=$(nvidia-smi --list-gpus | wc -l)

args=(
    --nnodes="$NNODES"
    --nproc_per_node="$GPUS"   # as many as there are
    --rdzv_id="${RUN_ID:-default}"
    --rdzv_backend=c10d
    --rdzv_endpoint="$HEAD:29400"
    --max_restarts=3
)
if [[ -n ${LOG_DIR:-} ]]; then
    args+=(--log-dir "$LOG_DIR" --redirects 3)
fi

exec torchrun "${args[@]}" -m mypackage.train --epochs 3
