# shellcheck shell=bash
# The help, which stands above each command and is put together here, in the order of the parts.

commands=()
declare -A help_text=() help_topic=()
heading=''

# topic <heading>: of the commands that are described after it.
topic() { heading=$1; }

# describe <command>: its help is the standard input. What follows is its function, cmd_<command>.
describe() {
  local text
  IFS= read -r -d '' text || true  # (which is its answer at the end of the text)
  commands+=("$1")
  help_topic[$1]=$heading
  help_text[$1]=${text%$'\n'}
}

# help_of <command>
help_of() {
  local name=$1 line
  while IFS= read -r line; do
    printf '  %-12s %s\n' "$name" "$line"
    name=''
  done <<<"${help_text[$1]}"
}

# Prints the whole help on standard output.
usage() {
  local command last='none yet'
  printf 'usage: ./dev <command> [arguments]\n'
  for command in "${commands[@]}"; do
    if [[ ${help_topic[$command]} != "$last" ]]; then
      last=${help_topic[$command]}
      printf '\n%s' "${last:+$last$'\n'}"
    fi
    help_of "$command"
  done
  cat <<'HELP'

Missing Debian packages are installed first (as root or through sudo) and named. Build trees are
build/<preset>, see CMakePresets.json. The Python environment is build/venv.
HELP
}

# no_command [word]: the end of ./dev if it is not told what to do.
no_command() {
  [[ -z ${1:-} ]] || printf './dev: no command "%s"\n\n' "$1" >&2
  usage >&2
  exit 2
}
