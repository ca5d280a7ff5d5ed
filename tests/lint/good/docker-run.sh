#!/bin/bash
docker run -d --rm --gpus all --network host --ipc=host \
    --ulimit memlock=-1 --ulimit stack=67108864 \
    --device=/dev/infiniband --cap-add=IPC_LOCK \
    -e NCCL_IB_HCA=mlx5_0,mlx5_1 -e NCCL_SOCKET_IFNAME=bond0 \
    -v /data:/data --name train nvcr.io/nvidia/pytorch:24.10-py3 \
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint gpu01:29500 train.py
docker run --rm -it --gpus all -p 8888:8888 --shm-size=16g jupyter-image
