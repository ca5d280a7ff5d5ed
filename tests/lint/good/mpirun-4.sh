#!/bin/bash
# Intel MPI
export I_MPI_FABRICS=shm:ofi
export NCCL_SOCKET_IFNAME=bond0
mpiexec.hydra -n 16 -ppn 8 -hosts gpu01,gpu02 python train.py
