#!/bin/bash
set -e
cat > .deepspeed_env <<EOT
GLOO_SOCKET_IFNAME=bond0
HF_HOME=/shared/hf
EOT
export HF_HOME=/shared/hf
deepspeed --hostfile /shared/hostfile --include "gpu01:0,1@gpu02:0,1" --ssh_port 44222 train.py
