#!/usr/bin/env bash
# From a float checkpoint to a quantized one and a report of it, step by step: `./dev demo`.
#
#   demo.sh <the command octavo> <directory for what is made>
set -euo pipefail

readonly octavo=$1 out=$2
here=$(realpath --relative-base="$PWD" "$(dirname "${BASH_SOURCE[0]}")")
readonly model=$here/model stats=$here/stats.safetensors

bold='' plain=''
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi

tell() { printf '\n%s\n' "$@"; }

# Shows a command as one would type it, and runs it.
run() {
  printf '\n%s$ octavo' "$bold"
  printf ' %s' "$@"
  printf '%s\n\n' "$plain"
  "$octavo" "$@"
}

rm -rf "$out"
mkdir -p "$out"

tell 'A small language model. Which of its layers can be quantized, and which norms could take over a
part of their scale?'
run inspect "$model"

tell 'To 8 bits: weights with a scale for each output channel, activations with one scale for each
layer, from statistics of some text. A few channels are far larger than the others and would take
the whole range of that scale, so they are smoothed first: divided in the norm, multiplied in the
weights. How far is searched for each norm.'
run quantize "$model" "$out/W8A8" --scheme w8a8-static --smooth "$stats" --alpha auto

tell 'What did it cost? Each layer, next to the float one.'
run verify "$model" "$out/W8A8" --stats "$stats"

tell 'The same as a page to look at, with the outliers before and after:'
run report "$model" "$out/W8A8" --stats "$stats" -o "$out/report.html"
