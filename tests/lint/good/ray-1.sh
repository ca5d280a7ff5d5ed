#!/bin/bash
ray stop --force
ray start --head --port=6379 --dashboard-host=0.0.0.0 --num-gpus 8
