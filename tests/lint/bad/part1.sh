torchrun --nnodes 3 --nproc-per-node 8 --node-rank 1 --master-addr gpu01 --master-port 29501 eval.py
