#!/bin/bash
export GLOO_SOCKET_IFNAME=bond0
export HF_HOME=/shared/hf
deepspeed --hostfile hostfile train.py
deepspeed --hostfile hostfile --include gpu01 --num_gpus 4 train.py
