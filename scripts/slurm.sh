#!/usr/bin/env bash
# Trains on several machines under Slurm. At the time limit the job saves its state and requeues itself.
#
#   sbatch --nodes=4 scripts/slurm.sh experiment=wmt14_en_de_big training.micro_batches=32 run_dir=/shared/big
#
# Slurm options before the script override those below; arguments after it are options of nmt-train.
# docs/many_gpus.md has the details: which process writes what, where data are prepared, runs without GPUs.
#
#SBATCH --job-name=nmt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1     # one torchrun per machine, which starts one process per GPU
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32      # divided among the processes of the machine
#SBATCH --mem=0                 # all of the machine's memory
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300     # five minutes before the end, to this script; USR1 and HUP work too
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

set -euo pipefail

# The first machine runs rank 0, which writes run_dir, prints and validates.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") # no pipe into head, which would close it early
first=${hosts%%$'\n'*}
endpoint=$first:$((20000 + SLURM_JOB_ID % 10000))

# Time limit in seconds for the end of an update and a checkpoint after a stop request.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=240

# Relays the stop request to the processes; srun would kill them.
stopping=
trap 'stopping=yes; scancel --signal=TERM "$SLURM_JOB_ID"' TERM HUP USR1 USR2

# Slurm 22.05 to 23.02: a step must request the cores per task of its job again, or it gets one core.
# shellcheck disable=SC2016 # expanded on each machine
srun ${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"} --kill-on-bad-exit=0 bash -c '
    endpoint=$1; shift
    exec torchrun --nnodes="$SLURM_JOB_NUM_NODES" --node-rank="$SLURM_NODEID" \
        --nproc-per-node="${PROCESSES:-gpu}" --rdzv-endpoint="$endpoint" -m nmt.cli.train "$@"
' torchrun "$endpoint" "$@" &
step=$!

status=0
wait "$step" || status=$?
if [[ -n $stopping ]]; then
    wait "$step" || true # the signal ended the first wait; the state is being saved
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
