#!/bin/bash
# A Ray cluster within a Slurm job, and ptxdiff on it; the job ends with ptxdiff's exit status:
#   sbatch --nodes=4 --gpus-per-node=8 ptxdiff.sh run cases --effort full --records records
# Use one job for each partition with different GPUs; `ptxdiff report A.jsonl B.jsonl` merges their records.
#SBATCH --job-name=ptxdiff
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=04:00:00
set -euo pipefail
# The environment with ptxdiff[cluster], the same on all nodes:
if [[ -n "${PTXDIFF_ACTIVATE:-}" ]]; then source "$PTXDIFF_ACTIVATE"; fi

head=$(hostname) # Slurm runs this script on the first node
host=$(hostname --ip-address | cut -d ' ' -f 1)
address=$host:${PTXDIFF_PORT:-6379}
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT # the cluster ends with the job

# Other users have accounts on these machines, so only a process with the token may use the cluster. A Ray version
# without tokens runs without one. srun passes both variables on to the nodes.
if token=$(ray get-auth-token --generate 2>/dev/null) && [[ -n "$token" ]]; then
  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$token
fi

# --block keeps the step running, because Slurm ends a step's processes with it. --overlap: the step shares the node
# with this script.
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --block --disable-usage-stats --node-ip-address="$host" --port="${address##*:}" &
ptxdiff cluster nodes "$address" --expect 1 --wait 300
if ((SLURM_JOB_NUM_NODES > 1)); then
  others=$((SLURM_JOB_NUM_NODES - 1))
  srun --overlap --nodes="$others" --ntasks="$others" --exclude="$head" \
    ray start --address="$address" --block --disable-usage-stats &
fi
# Wait for every node before the run, because the emulator would run the items of a missing GPU.
ptxdiff cluster nodes "$address" --expect "$SLURM_JOB_NUM_NODES" --wait 300
ptxdiff "$1" --cluster "$address" "${@:2}"
