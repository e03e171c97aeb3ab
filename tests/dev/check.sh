#!/usr/bin/env bash
# check.sh <top directory>
#
# `dev` and its parts belong together: each part is sourced and short, each command has its help right
# above it and is listed once, and only tools/dev/versions.sh names a version; CMake's files, which cannot
# read that one, name the same.

cd "$1" || exit 1
failures=0
fail() {
  echo "$*"
  failures=$((failures + 1))
}
# same <what> <expected> <found>
same() { [[ $2 == "$3" ]] || fail "$1 (<: expected, >: found)"$'\n'"$(diff <(echo "$2") <(echo "$3"))"; }

parts=(tools/dev/*.sh)
same 'dev: what it sources' "$(printf '%s\n' "${parts[@]}")" "$(sed -n 's/^source //p' dev | sort)"
(($(wc -l <dev) < 100)) || fail 'dev: 100 lines or more; its parts are in tools/dev'
for part in "${parts[@]}"; do
  (($(wc -l <"$part") <= 400)) || fail "$part: more than 400 lines"
done

# --- Help ----------------------------------------------------------------------------------------

help=$(./dev help) || fail './dev help fails'
mapfile -t commands < <(bash -c 'source ./dev help >/dev/null && compgen -A function cmd_' | sed 's/^cmd_//')
((${#commands[@]} > 1)) || fail 'dev: no commands'
for command in "${commands[@]}"; do
  one=$(./dev help "$command" 2>/dev/null) || { fail "$command: no help"; continue; }
  [[ $one =~ ^\ \ $command\ +[^\ ] && $'\n'$help$'\n' == *$'\n'"$one"$'\n'* ]] ||
    fail "$command: its help is not that of ./dev help: $one"
done
same 'dev: commands that ./dev help lists' "$(printf '%s\n' "${commands[@]}" | sort)" \
  "$(sed -nE 's/^  ([^ ]+) .*/\1/p' <<<"$help" | sort)"
# (Headings are at the margin; one that is there twice has commands between the two that belong elsewhere.)
same 'dev: headings that are there twice' '' "$(grep '^[^ ]' <<<"$help" | sort | uniq -d)"
same 'dev: functions without their help right above them' '' "$(awk '
  $1 == "describe" { described = $2 }
  /^cmd_/ && (last != "HELP" || "cmd_" described "()" != $1) { print FILENAME ": " $1 }
  { last = $0 }' dev "${parts[@]}")"

# --- Any other word, from any place --------------------------------------------------------------

elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
ln -s "$PWD/dev" "$elsewhere/link"
same 'dev: help through a link' "$help" "$(cd "$elsewhere" && ./link help 2>&1)"
# refused <first line> [arguments]: standard output stays empty.
refused() {
  local -r first=$1
  shift
  ./dev "$@" >"$elsewhere/out" 2>"$elsewhere/err"
  same "./dev $*: exit code" 2 $?
  same "./dev $*: output" '' "$(cat "$elsewhere/out")"
  same "./dev $*: error" "${first:+$first$'\n\n'}$help" "$(cat "$elsewhere/err")"
}
refused ''
refused './dev: no command "nonsense"' nonsense
refused './dev: no command "nonsense"' help nonsense

# --- Versions ------------------------------------------------------------------------------------

# shellcheck source=tools/dev/versions.sh
source tools/dev/versions.sh

readonly compiler='(gcc|g\+\+|clang|clang\+\+)[- ][0-9]+'
readonly both="g++ $gcc_version and clang $clang_version"
same 'CMakePresets.json: compilers' \
  "$(printf '%s\n' {gcc-,g++-,g++\ }"$gcc_version" {clang-,clang++-,clang\ }"$clang_version" | sort)" \
  "$(grep -oE "$compiler" CMakePresets.json | sort -u)"
same 'OctavoWarnings.cmake: clang-tidy' "clang-tidy-$clang_version" \
  "$(grep -oE 'clang-tidy-[0-9]+' cmake/OctavoWarnings.cmake | sort -u)"
[[ $(./dev help matrix) == *"$both"* ]] || fail "matrix: its help does not say $both"
for cpu in "${x86_cpus[@]}"; do
  [[ $(./dev help oldx86) == *"${cpu%%,*}"* ]] || fail "oldx86: its help does not say ${cpu%%,*}"
done
for cpu in "${arm64_cpus[@]}"; do
  [[ $(./dev help aarch64) == *"${cpu%%,*}"* ]] || fail "aarch64: its help does not say ${cpu%%,*}"
done
same 'versions outside tools/dev/versions.sh' '' \
  "$(grep -nE '(gcc|g\+\+|clang|llvm|[a-z]-(format|tidy|rt|cov|profdata))-[0-9]|python-version [0-9]|QEMU_CPU=[^$]' \
    dev "${parts[@]}" | grep -v '^tools/dev/versions.sh:')"
same 'packages outside tools/dev/versions.sh' '' "$(grep -nE '^[^#]*\<need ' "${parts[@]}" |
  grep -vE '\<need ("\$\{[a-z0-9_]+_packages\[@\]\}" ?)+$')"

((failures == 0)) && echo "${#commands[@]} commands in ${#parts[@]} parts, each with its help"
