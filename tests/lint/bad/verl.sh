#!/bin/bash
python3 -m verl.trainer.main_ppo \
    trainer.nnodes=2 trainer.n_gpus_per_node=8 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=3
