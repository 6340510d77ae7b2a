# Sourced by the scripts: configures and builds quietly; says what went wrong where something did.

# quietly WHAT COMMAND...: shows the command's output only if it fails.
quietly() {
  local what="$1" log
  shift
  log="$(mktemp)"
  if ! "$@" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    echo "tpsim: $what failed (see above)" >&2
    return 1
  fi
  rm -f "$log"
}

# drop_foreign_build DIR: a build folder that was configured for a checkout elsewhere cannot be reused.
drop_foreign_build() {
  local home
  [[ -f "$1/CMakeCache.txt" ]] || return 0
  home="$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$1/CMakeCache.txt")"
  [[ "$home" == "$PWD" ]] || rm -rf "$1"
}
