#!/bin/bash
mpirun -np 16 -H gpu01:8,gpu02:8 --bind-to none --map-by slot \
    -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH \
    --mca btl_tcp_if_include bond0 --mca pml ob1 \
    ./all_reduce_perf -b 8 -e 1G -f 2 -g 1
