#!/bin/bash
# Trains on several machines. Start it on each of them, with the same settings:
#
#   JOB=7 NODES=2 RANKS=4 HEAD=node1:29500 torchrun-nodes.sh train.py
#
# JOB: name of the job, which becomes part of the name of the run folder. NODES: number of machines. RANKS: number of
# processes on each machine. HEAD: one of the machines, and a free port on it.
set -euo pipefail

exec headspace run -- torchrun --nnodes="$NODES" --nproc-per-node="$RANKS" \
  --rdzv-backend=c10d --rdzv-endpoint="$HEAD" --rdzv-id="$JOB" "$@"
