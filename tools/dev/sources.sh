# shellcheck shell=bash
# Files of the project, and what judges their style.

# sources <glob>...: tracked and new files that are not ignored and still exist.
sources() {
  local file
  git ls-files --cached --others --exclude-standard --deduplicate -- "$@" |
    while read -r file; do if [[ -f $file ]]; then printf '%s\n' "$file"; fi; done
}

# ruff_over_sources <ruff command>...: over all Python sources, if there are any.
ruff_over_sources() {
  local -a files
  mapfile -t files < <(sources '*.py' '*.pyi')
  ((${#files[@]})) || return 0
  "$venv/bin/ruff" "$@" --config 'line-length = 100' --cache-dir "$root/build/ruff" "${files[@]}"
}

style_tools() {
  need "${style_packages[@]}"
  python_env
  locked ruff
}
