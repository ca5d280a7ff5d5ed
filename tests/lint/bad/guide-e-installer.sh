#!/bin/bash
set -e
curl -fsSL https://github.com/example/framework/blob/main/scripts/install_docker.sh | sudo bash
