#!/bin/bash
# tp2-pp1-dp16-mbs1-z3-rnone on 4 x 8 GPUs, by tuner export
# Run this script on each node with the same HEAD_NODE, and with its number from 0 as NODE_RANK.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${HEAD_NODE:?set it to the host name or address of node 0}"
: "${NODE_RANK:?set it to the number of this node, from 0 to 3}"
: "${TRAIN_SCRIPT:?set it to your training program, or export again with --command}"
export TUNER_FOLDER="$folder"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

exec "${PYTHON:-python3}" -m accelerate.commands.launch \
  --config_file "$folder/accelerate.yaml" \
  --machine_rank "${NODE_RANK:-0}" \
  --main_process_ip "${HEAD_NODE:-127.0.0.1}" \
  --main_process_port "${MASTER_PORT:-29400}" \
  "$TRAIN_SCRIPT" "$@"
