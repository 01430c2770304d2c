#!/bin/bash
# tp4-pp12-dp8-mbs2-z1-emb on 48 x 8 GPUs, by tuner export
# Run this script on one node with passwordless ssh to all nodes of the hostfile.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${TRAIN_SCRIPT:?set it to your training program, such as TRAIN_SCRIPT=train.py}"
export CUDA_DEVICE_MAX_CONNECTIONS=1

exec deepspeed \
  --hostfile "$folder/hostfile" \
  --num_nodes 48 \
  --num_gpus 8 \
  --master_port "${MASTER_PORT:-29400}" \
  "$TRAIN_SCRIPT" --deepspeed --deepspeed_config "$folder/ds_config.json" "$@"
