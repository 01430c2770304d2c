#!/bin/bash
# tp4-pp12-dp8-mbs2-z1-emb on 48 x 8 GPUs, by tuner export
# Start this script on one node that reaches all nodes of the hostfile by ssh without a password.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${TRAIN_SCRIPT:?name your training program, such as TRAIN_SCRIPT=train.py}"
export CUDA_DEVICE_MAX_CONNECTIONS=1

exec deepspeed \
  --hostfile "$here/hostfile" \
  --num_nodes 48 \
  --num_gpus 8 \
  --master_port "${MASTER_PORT:-29400}" \
  "$TRAIN_SCRIPT" --deepspeed --deepspeed_config "$here/ds_config.json" "$@"
