#!/bin/bash
export NCCL_SOCKET_IFNAME=bond0
deepspeed --hostfile=hostfile --master_port 29501 train.py --deepspeed_config ds.json
