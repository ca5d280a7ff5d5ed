export MASTER_ADDR=192.168.1.10
export MASTER_PORT=29500
export WORLD_SIZE=8
export RANK=0
torchrun --nnodes=2 --nproc_per_node=4 --node_rank=0 --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py
