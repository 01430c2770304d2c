#!/bin/bash
# tp4-pp12-dp8-mbs2-z1-emb on 48 x 8 GPUs, by tuner export
# Run this script on each of the 48 nodes, with the same HEAD_NODE on all.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${HEAD_NODE:?set it to the host name or address of one of the nodes}"
export TUNER_FOLDER="$folder"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}


exec "${PYTHON:-python3}" -m torch.distributed.run \
  --nnodes=48 \
  --nproc-per-node=8 \
  --rdzv-id=bloom \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$HEAD_NODE:${MASTER_PORT:-29400}" \
  --max-restarts=0 \
  -m tuner.worker --job "$folder/assignment.json" "$@"
