# shellcheck shell=bash
# Debian packages.

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "this needs root or sudo: $*"
  fi
}

# need <package>...: installs those that are missing; if none is, apt and the network are not used.
need() {
  command -v dpkg-query >/dev/null || { say "not a Debian system; assumed present: $*"; return; }
  local -A present=()
  local -a missing=()
  local status name package
  # Both `name` and `name:architecture` are looked up, for a foreign one carries its architecture.
  while read -r status name; do
    [[ $status == installed ]] && present[$name]=1
  done < <(dpkg-query -W -f '${db:Status-Status} ${Package}:${Architecture}\n')
  local -r native=$(dpkg --print-architecture)
  for package in "$@"; do
    [[ -n ${present[$package]:-${present[$package:$native]:-${present[$package:all]:-}}} ]] ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing Debian packages: ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}"
}
