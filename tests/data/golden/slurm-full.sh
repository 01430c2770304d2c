#!/bin/bash
# Written by tuner for trial 1, tp2-pp1-dp8-mbs1-z1; depends only on the job and the site profile.
#SBATCH --job-name=tuner-0f3c
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=6
#SBATCH --gres=gpu:a100:8
#SBATCH --chdir=/
#SBATCH --output=/dev/null
#SBATCH --error=/dev/null
#SBATCH --account=physics
#SBATCH --partition=gpu,long
#SBATCH --constraint=[rack1|rack2]&a100
#SBATCH --qos=high
#SBATCH --reservation=tuning
#SBATCH --time=2:00:00
#SBATCH --nodelist=n[1-9]
#SBATCH --exclude=n7,n3
#SBATCH --open-mode=append
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --mem=0
#SBATCH --hint=nomultithread
# shellcheck disable=SC2016,SC2317 # quoted variables are not expanded here; traps call functions that look unreachable
set -u

folder=/scratch/study/0001
tag='"0f3c"'
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
MASTER_PORT=$((15000 + SLURM_JOB_ID % 16000))
export MASTER_ADDR MASTER_PORT
export WORLD_SIZE=16 LOCAL_WORLD_SIZE=8
export PET_NNODES=2 PET_NPROC_PER_NODE=8 PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT"
export TUNER_JOB=0f3c
export DS_ACCELERATOR=cuda
export ODD='/scratch/it'"'"'s "a" $(touch x) `y`;rm -rf *
#SBATCH --uid=0/é 模型/-rf/back\n%j'

# From the site profile: a line that fails ends the job; unset variables are empty, as activation scripts expect.
set -e +u +o pipefail
module load cuda/12.4
module load 'it'"'"'s; odd'
export NCCL_DEBUG=WARN
ulimit -l unlimited
set +e -u

cd -- /scratch/study/0001 || exit 1
# Each rank derives its rank numbers from Slurm's variables.
srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --kill-on-bad-exit=1 --cpus-per-task=6 --cpu-bind=none --mpi=pmix \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID PET_NODE_RANK=$SLURM_NODEID; exec "$@"' rank \
    apptainer exec --nv '/images/my image.sif' '/opt/python 3/bin/python' -m tuner.worker --job /scratch/study/0001/assignment.json &
step=$!
wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do
    wait "$step"
    code=$?
done
exit "$code"
