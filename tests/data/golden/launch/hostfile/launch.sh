#!/bin/bash
# tp4-pp12-dp8-mbs2-z1-emb on 48 x 8 GPUs, by tuner export
# Run this script on one node with passwordless ssh to all nodes of the hostfile, and with pdsh.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "$(grep -cE '^[A-Za-z0-9]\S*\s+slots=[0-9]+' "$folder/hostfile")" -lt 48 ]; then
  echo "List 48 nodes in $folder/hostfile, one per line: node-1 slots=8" >&2
  exit 2
fi
case $folder in
  *[!A-Za-z0-9_@%+=:,./-]*) echo "DeepSpeed's launcher cannot use the path $folder: rename it." >&2; exit 2 ;;
esac
export TUNER_FOLDER="$folder"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

export DS_ENV_FILE="$folder/.deepspeed_env"  # the variables that the launcher passes to all nodes
cd -- "$folder"

exec "${PYTHON:-python3}" -m deepspeed.launcher.runner \
  --hostfile "$folder/hostfile" \
  --num_nodes 48 \
  --num_gpus 8 \
  --master_port "${MASTER_PORT:-29400}" \
  --no_local_rank \
  --module tuner.worker --job "$folder/assignment.json" "$@"
