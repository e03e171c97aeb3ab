#!/bin/sh
# check.sh <top directory>
#
# Nothing comes from PyPI but what requirements/*.txt name by version and hash: each package in there has
# a hash, each version that an .in file asks for is the one of its list, and `dev` with its parts has no
# other way of installing.

cd "$1" || exit 1
failures=0
fail() {
  echo "$*"
  failures=$((failures + 1))
}

lists=0
for list in requirements/*.txt; do
  [ "$list" = requirements/overrides.txt ] && continue
  lists=$((lists + 1))
  # A package is a line that begins with its name; its hashes are on the lines that continue it.
  bare=$(awk '/^[A-Za-z0-9]/ && !/==[^ ]+ \\$/ { print $1 }
    /^[A-Za-z0-9]/ { name = $1; getline; if ($0 !~ /^ +--hash=sha256:[0-9a-f]+( \\)?$/) print name }
  ' "$list")
  [ -z "$bare" ] || fail "$list: without version or hash: $bare"
  grep -q == "$list" || fail "$list: names nothing"
done
for wanted in requirements/*.in; do
  list=${wanted%.in}.txt
  for package in $(grep -v '^#' "$wanted" | tr _ -); do
    case $package in *==*) end=' ' ;; *) end='==' ;; esac
    tr _ - <"$list" | grep -qF "$package$end" || fail "$list: no $package: run ./dev lock"
  done
done

# --no-index: what was built here.
installs=$(sed ':a; /\\$/ { N; s/\\\n//; ba }' dev tools/dev/*.sh | grep -E 'pip"? (install|download)')
others=$(echo "$installs" | grep -v -e require-hashes -e no-index -e '^ *say' -e '^#')
[ -z "$others" ] || fail "dev: installs without hashes: $others"
echo "$installs" | grep -q require-hashes || fail 'dev: where does it install?'
[ "$failures" -eq 0 ] && echo "$lists lists, every package with its hashes"
