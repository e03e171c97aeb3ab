#!/bin/sh
# ptxas.sh <ptxas> <ptx>...
#
# What the driver will do with device code on a GPU, where NVIDIA's assembler is found: it takes every kernel, for
# some sorts of GPUs, without spilling registers to memory; OCTAVO_PTXAS_ALL=1 for all that matter. Exit 77: there
# is no ptxas.

ptxas=$1
shift
if ! command -v "$ptxas" >/dev/null 2>&1; then
  echo "skipped: there is no ptxas"
  exit 77
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
architectures="sm_80 sm_120"
if [ "$OCTAVO_PTXAS_ALL" = 1 ]; then architectures="sm_80 sm_86 sm_89 sm_90 sm_100 sm_120"; fi
kernels=0
wrong=0
for arch in $architectures; do
  for ptx in "$@"; do
    if ! "$ptxas" -arch="$arch" -v "$ptx" -o /dev/null >"$log" 2>&1; then
      if grep -q "is not defined for option" "$log"; then
        echo "$arch: this ptxas does not know it"
        break
      fi
      echo "$ptx for $arch:"
      cat "$log"
      exit 1
    fi
    kernels=$((kernels + $(grep -c "Compiling entry function" "$log")))
    spilled=$(awk '/Compiling entry/ {name = $6} /spill stores/ && !/ 0 bytes spill stores, 0 bytes spill loads/ {print name ": " $0}' "$log")
    if [ -n "$spilled" ]; then
      echo "$arch: $spilled"
      wrong=1
    fi
  done
done
echo "$kernels kernels assembled"
[ "$kernels" -gt 0 ] && [ "$wrong" -eq 0 ]
