#!/bin/sh
# exports.sh <nm> <shared library> <directory of the C headers> <list of C++ names>
#
# The library exports the functions that the C headers declare and the C++ names of the list, all of
# them, and nothing else. A change of the list is a change of the ABI.

nm=$1
library=$2
headers=$3
list=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
  cat "$headers"/*.h | tr '\n' ' ' | grep -o 'OCTAVO_API [^(;]*(' | grep -o 'octavo_[a-z0-9_]*('
  grep -v '^#' "$list"
} | tr -d '(' | sort -u >"$work/allowed"
"$nm" -D -C --defined-only "$library" | cut -d ' ' -f 3- | sed 's/(.*//; s/\[abi:cxx11\]//' |
  sort -u >"$work/exported"

if [ "$(wc -l <"$work/exported")" -lt 50 ]; then
  echo "only $(wc -l <"$work/exported") names: is this the library?"
  exit 1
fi
if ! diff "$work/allowed" "$work/exported" >"$work/difference"; then
  echo "< is missing from $library, > is exported but should not be:"
  cat "$work/difference"
  exit 1
fi
echo "$(wc -l <"$work/exported") names, as they should be"
