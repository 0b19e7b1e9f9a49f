#!/bin/bash
# Trains on one machine with RANKS processes, and prints the report: RANKS=4 torchrun-one-node.sh train.py
set -euo pipefail

# The report on all ranks, also if the training fails.
trap 'headspace report' EXIT

headspace run -- torchrun --standalone --nproc-per-node="$RANKS" "$@"
