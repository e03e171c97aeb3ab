#!/bin/sh
# package.sh <package.deb> <scratch directory> <program in C>
#
# Installs the package into a root of its own, builds and runs the program against it, removes the
# package, and looks whether anything is left. Needs root, or else fakeroot.
set -eu

package=$(readlink -f "$1")
mkdir -p "$2"
root=$(readlink -f "$2")
program=$3
fail() {
  echo "package: $*" >&2
  exit 1
}

if [ "$(id -u)" -ne 0 ] && [ -z "${FAKEROOTKEY:-}" ]; then
  exec fakeroot "$0" "$@"
fi

for needed in libc6 libstdc++6 libfmt libre2 libtbb; do
  dpkg-deb --field "$package" Depends | grep -q "$needed" || fail "no dependency on $needed"
done

rm -rf "$root"
state=$root/var/lib/dpkg
mkdir -p "$state/info" "$state/updates" "$root/var/bin"
: >"$state/status"
# The package's scripts call ldconfig, which is not to touch the machine.
printf '#!/bin/sh\necho called >>"%s/var/ldconfig"\n' "$root" >"$root/var/bin/ldconfig"
chmod +x "$root/var/bin/ldconfig"
# The root has no other package: what this one depends on is that of the machine.
in_root() {
  PATH="$root/var/bin:$PATH" dpkg --root="$root" --force-depends --force-script-chrootless \
    --log=/dev/null "$@" >"$root/var/output" 2>&1 || fail "$(cat "$root/var/output")"
}

in_root --install "$package"
[ "$(dpkg-query --admindir="$state" -W -f '${db:Status-Status}' octavo)" = installed ] ||
  fail "it is not installed"
libraries=$(dirname "$(find "$root/usr/lib" -name liboctavo.so)")
export PKG_CONFIG_LIBDIR="$libraries/pkgconfig"
# shellcheck disable=SC2046 # the flags are words
cc -std=c99 "$program" $(pkg-config --cflags --libs octavo) "-Wl,-rpath,$libraries" -o "$root/var/first"
"$root/var/first" | grep -q '0.314 ->   31 ->  0.31' || fail "the program printed something else"

command=$root/usr/bin/octavo
"$(dirname "$0")/../hardening/check.sh" readelf "$command" "$libraries/liboctavo.so" ||
  fail "it is not hardened"
LD_LIBRARY_PATH=$libraries "$command" info | grep -q targets || fail "the command does not run"
for file in lib*/*/cmake/octavo/octavo-offline-targets.cmake include/octavo/checkpoint.hpp; do
  # shellcheck disable=SC2086 # the library directory has the name of the architecture
  ls "$root"/usr/$file >/dev/null || fail "no $file"
done

in_root --purge octavo
[ "$(wc -l <"$root/var/ldconfig")" -eq 2 ] || fail "ldconfig was not called after both"
left=$(find "$root" -mindepth 1 -not -path "$root/var*")
[ -z "$left" ] || fail "left behind: $left"
echo "package: installed, used and removed; nothing is left"
