#!/bin/bash
sudo docker run -dit --gpus all -p 9001:22 --ipc=host --shm-size=10gb \
    --name train registry.example.com/framework:torch260 /bin/bash
