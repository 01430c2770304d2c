#!/bin/bash
# Written by tuner for trial 1, tp2-pp1-dp8-mbs1-z1; depends only on the job and the site profile.
# shellcheck disable=SC2016,SC2317 # quoted variables are not expanded here; traps call functions that look unreachable
set -u

folder='/scratch/it'"'"'s "a" $(touch x) `y`;rm -rf *
#SBATCH --uid=0/é 模型/-rf/back\n%j'
tag='"a \"tag\"\n$(x)"'
restart=${SLURM_RESTART_COUNT:-0}
step=
signalled=false

moment() {
    local now=${EPOCHREALTIME:-$(date +%s)}
    printf '%s' "${now/,/.}"
}

# Write a file of the folder atomically: name, text.
put() {
    printf '%s\n' "$2" >"$folder/.$1.$SLURM_JOB_ID" && mv -f -- "$folder/.$1.$SLURM_JOB_ID" "$folder/$1"
}

# Record how the job ended; $1 is the exit code.
ended() {
    trap '' TERM
    put ended.json "{\"tag\": $tag, \"job\": \"$SLURM_JOB_ID\", \"restart\": $restart, \"exit\": $1,\
 \"signalled\": $signalled, \"began\": $began, \"ended\": $(moment)}"
}

told() {
    signalled=true
    if [ -n "$step" ]; then
        kill -TERM "$step" 2>/dev/null
    fi
}

began=$(moment)
if [ "$restart" -gt 0 ]; then
    for name in stdout.log stderr.log steps.log ended.json; do
        if [ -e "$folder/$name" ]; then
            mv -f -- "$folder/$name" "$folder/$name.before-$restart"
        fi
    done
    # A link to the log that --log names.
    if log=$(readlink -- "$folder/trainer.log") && [ -e "$log" ]; then
        backup=$restart
        while [ -e "$log.before-$backup" ]; do
            backup=$((backup + 1))
        done
        mv -- "$log" "$log.before-$backup"
    fi
fi
# The launcher interprets this exit code as: the folder is not writable here.
: >>"$folder/stdout.log" || exit 73
exec >>"$folder/stdout.log" 2>>"$folder/stderr.log" </dev/null
trap 'ended $?' EXIT
trap told TERM
put began.json "{\"tag\": $tag, \"job\": \"$SLURM_JOB_ID\", \"restart\": $restart, \"began\": $began,\
 \"nodes\": \"$SLURM_JOB_NODELIST\"}"

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)  # head would break the pipe of a long list
if ! getent hosts "$MASTER_ADDR" >/dev/null; then
    MASTER_ADDR=$(scontrol -o show node "$MASTER_ADDR" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
fi
MASTER_PORT=$((15000 + (SLURM_JOB_ID + 1) % 16000))
export MASTER_ADDR MASTER_PORT
export WORLD_SIZE=16 LOCAL_WORLD_SIZE=8
export PET_NNODES=2 PET_NPROC_PER_NODE=8 PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT"
export TUNER_JOB='a "tag"
$(x)'
export DS_ACCELERATOR=cuda
export MORE='/scratch/it'"'"'s "a" $(touch x) `y`;rm -rf *
#SBATCH --uid=0/é 模型/-rf/back\n%j'
export ODD='/scratch/it'"'"'s "a" $(touch x) `y`;rm -rf *
#SBATCH --uid=0/é 模型/-rf/back\n%j'

cd -- '/scratch/it'"'"'s "a" $(touch x) `y`;rm -rf *
#SBATCH --uid=0/é 模型/-rf/back\n%j' || exit 1
# Each rank derives its rank numbers from Slurm's variables.
srun --nodelist="$SLURM_JOB_NODELIST" --overlap --job-name=tuner-d760406121ee745db53fd207 --gres=gpu:8 --nodes=2 --ntasks=16 --ntasks-per-node=8 --kill-on-bad-exit=1 \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID PET_NODE_RANK=$SLURM_NODEID; exec "$@"' rank \
    /opt/python -m tuner.worker --job '/scratch/it'"'"'s "a" $(touch x) `y`;rm -rf *
#SBATCH --uid=0/é 模型/-rf/back\n%j/assignment.json' &
step=$!
wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do
    wait "$step"
    code=$?
done
exit "$code"
