#!/usr/bin/env bash
# Trains on several machines under Slurm; stopped by the time limit, the job goes on in a new one by itself.
#
#   sbatch --nodes=4 scripts/slurm.sh experiment=wmt14_en_de_big training.micro_batches=32 run_dir=/shared/big
#
# Options of Slurm before the script overrule those below; what stands behind it goes to nmt-train.
# docs/many_gpus.md tells the rest: who writes what, where data are prepared, what to do without GPUs.
#
#SBATCH --job-name=nmt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1     # one torchrun a machine, which starts one process a GPU
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32      # cores are shared by the processes of the machine
#SBATCH --mem=0                 # all of the machine's memory
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300     # five minutes before the end this script hears of it; USR1 or HUP do as well
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

set -euo pipefail

# The first machine holds the first process: the one that writes run_dir, prints and validates.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") # not into head, which would break the pipe
first=${hosts%%$'\n'*}
endpoint=$first:$((20000 + SLURM_JOB_ID % 10000))

# So long may the end of an update and a checkpoint take after a request to stop.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=240

# The request goes to the processes; srun itself would kill them.
stopping=
trap 'stopping=yes; scancel --signal=TERM "$SLURM_JOB_ID"' TERM HUP USR1 USR2

# Slurm 22.05 to 23.02: what the job was given a task, its steps must ask for again, or they get one core.
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
    wait "$step" || true # the signal ended the first wait; now the state is being saved
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
