#!/bin/bash
# tp2-pp4-dp4-mbs1-z2-vpp2-sp on 4 x 8 GPUs, by tuner export
# Run this script on each of the 4 nodes, with the same HEAD_NODE on all.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${HEAD_NODE:?set it to the host name or address of one of the nodes}"
: "${TOKENIZER:?set it to the folder of the tokenizer}"
: "${CHECKPOINTS:?set it to the folder for checkpoints}"
: "${DATASET:?set it to the name of a data set in DATASETS of torchtitan, such as c4}"
export TOKENIZER CHECKPOINTS DATASET
export TUNER_FOLDER="$folder"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

export PYTHONPATH="$folder${PYTHONPATH:+:$PYTHONPATH}"

exec "${PYTHON:-python3}" -m torch.distributed.run \
  --nnodes=4 \
  --nproc-per-node=8 \
  --rdzv-id=bloom \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$HEAD_NODE:${MASTER_PORT:-29400}" \
  --max-restarts=0 \
  -m torchtitan.train --module recipe --config run "$@"
