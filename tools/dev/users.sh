# shellcheck shell=bash
# What users install.

topic 'For users'

describe wheel <<'HELP'
build the Python module as a wheel in build/wheel, with the libraries it needs in it
HELP
cmd_wheel() {
  need "${build_packages[@]}"
  module_env
  locked auditwheel
  local -r bare=build/wheel/bare
  rm -rf build/wheel
  "$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir $bare . "$@"
  # oneTBB, {fmt} and RE2 are shared libraries of this machine: copies go into the wheel, for others, and
  # their licences.
  local copyright
  for copyright in /usr/share/doc/lib{tbb,fmt,re2-}[0-9]*/copyright; do
    "$venv/bin/python" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "a").write(*sys.argv[2:])' \
      $bare/octavo-*.whl "$copyright" "octavo/licenses/$(basename "$(dirname "$copyright")").txt"
  done
  PATH=$venv/bin:$PATH "$venv/bin/auditwheel" --verbose repair --wheel-dir build/wheel \
    $bare/octavo-*.whl 2>build/wheel/repair.log || { cat build/wheel/repair.log >&2; return 1; }
  say 'wheel: a first program, in an environment of its own'
  /usr/bin/python3 -m venv build/wheel/venv
  local -ra options=(--quiet --disable-pip-version-check --no-deps)
  build/wheel/venv/bin/pip install "${options[@]}" --require-hashes -r requirements/numpy.txt
  build/wheel/venv/bin/pip install "${options[@]}" --no-index build/wheel/octavo-*.whl
  (cd build/wheel && venv/bin/python "$root/examples/first.py")
  tests/hardening/check.sh readelf build/wheel/venv/lib/python3*/site-packages/octavo/_core*.so
  say "wheel: $(echo build/wheel/octavo-*.whl)"
}

describe package <<'HELP'
build the Debian package, and install, use and remove it below build/package
HELP
cmd_package() {
  need "${build_packages[@]}" "${deb_packages[@]}"
  ((EUID == 0)) || need "${rootless_deb_packages[@]}"
  build package
  rm -f build/package/octavo_*.deb
  (cd build/package && cpack -G DEB)
  local -r package=$(ls build/package/octavo_*.deb)
  tests/consumers/package.sh "$package" build/package/root examples/first.c
  say "package: $package"
}
