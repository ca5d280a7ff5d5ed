#!/bin/bash
export MASTER_PORT=12000
ray start --head --port=12000
