#!/bin/bash
torchrun --nproc_per_node=8 python train.py
torchrun train.py --nproc_per_node=8
torchrun --nproc_per_node=all train.py
torchrun --num_nodes 1 --nproc_per_node=8 train.py
torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend nccl --rdzv_endpoint gpu01:29500 train.py
torchrun --nnodes 2 --nproc_per_node 8 --rdzv_id $(uuidgen) --rdzv_backend c10d --rdzv_endpoint gpu01:29500 train.py
torchrun --standalone --nnodes 2 --nproc_per_node 8 train.py
CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc_per_node 4 train.py
python -m torch.distributed.launch --nproc_per_node=8 train.py
torchrun --nnodes 1 --nproc_per_node 8 pretrain.py --tensor-model-parallel-size 3
