torchrun --nnodes 2 --nproc-per-node 8 --node-rank 0 --master-addr gpu01 --master-port 29500 eval.py
