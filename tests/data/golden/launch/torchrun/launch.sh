#!/bin/bash
# tp4-pp12-dp8-mbs2-z1-emb on 48 x 8 GPUs, by tuner export
# Run this script on each of the 48 nodes, with the same HEAD_NODE on all.
set -euo pipefail
: "${HEAD_NODE:?set it to the host name or address of one of the nodes}"
: "${TRAIN_SCRIPT:?set it to your training program, such as TRAIN_SCRIPT=train.py}"
export CUDA_DEVICE_MAX_CONNECTIONS=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

exec torchrun \
  --nnodes=48 \
  --nproc-per-node=8 \
  --rdzv-id=bloom \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$HEAD_NODE:${MASTER_PORT:-29400}" \
  --max-restarts=0 \
  "$TRAIN_SCRIPT" --deepspeed --deepspeed_config ds_config.json "$@"
