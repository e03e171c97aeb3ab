#!/bin/sh
# check.sh <readelf> <program or shared library>...
#
# What is shipped is hardened: all of its addresses are bound before it runs and are read-only then, it
# is loaded anywhere, its stack holds no code, a smashed stack ends it, and calls of the C library whose
# buffer has a known size are checked (one at least, in each file). Exit 77: cannot be checked here.

readelf=$1
shift
if ! command -v "$readelf" >/dev/null 2>&1; then
  echo "skipped: there is no readelf"
  exit 77
fi

failures=0
# expect <file> <what> <text> <extended regular expression>
expect() {
  printf '%s\n' "$3" | grep -Eq "$4" && return
  echo "$1: $2"
  failures=$((failures + 1))
}

for file in "$@"; do
  segments=$("$readelf" -lW "$file") || exit 1
  dynamic=$("$readelf" -dW "$file")
  symbols=$("$readelf" --dyn-syms -W "$file")
  expect "$file" "not position-independent" "$segments" 'file type is DYN'
  expect "$file" "no read-only relocations (-z relro)" "$segments" 'GNU_RELRO'
  expect "$file" "an executable stack (-z noexecstack)" "$segments" 'GNU_STACK .* RW +0x'
  expect "$file" "bound lazily (-z now)" "$dynamic" '\((FLAGS|FLAGS_1)\).*NOW'
  expect "$file" "no stack protector" "$symbols" 'UND __stack_chk_fail'
  expect "$file" "no checked calls (_FORTIFY_SOURCE)" "$symbols" 'UND __[a-z]+_chk'
done
[ "$failures" -eq 0 ] && echo "$# files, all hardened"
