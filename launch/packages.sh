# Sourced by the scripts: installs the Debian packages that are missing, and nothing when none is.

# For building and running tpsim.
TPSIM_PACKAGES="g++ cmake ninja-build protobuf-compiler libprotobuf-dev libspdlog-dev libfmt-dev libeigen3-dev
  nlohmann-json3-dev libcli11-dev libyaml-cpp-dev zlib1g-dev libsentencepiece-dev openmpi-bin libopenmpi-dev
  libboost-dev libjs-chart.js"

# For its tests, besides: the browser looks at report.html, python3 drives the command line, curl asks the server.
TPSIM_TEST_PACKAGES="libgtest-dev libgmock-dev ccache clang-format chromium python3 python3-venv procps curl"

# install_packages NAME...: needs apt and root or sudo only if a package is missing.
install_packages() {
  local missing=() name log
  for name in "$@"; do
    [[ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null)" == "ii "* ]] || missing+=("$name")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0

  if ! command -v apt-get >/dev/null; then
    echo "tpsim: these packages are missing and there is no apt-get to install them: ${missing[*]}" >&2
    return 1
  fi
  local as_root=()
  if [[ "$(id -u)" -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "tpsim: install these packages as root first (there is no sudo here): ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "tpsim: installing ${missing[*]}" >&2
  log="$(mktemp)"
  # A machine without package lists gets them; one with old lists gets new ones if the install fails.
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      "${missing[@]}" >"$log" 2>&1 </dev/null; then
    if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
      tail -n 20 "$log" >&2
      rm -f "$log"
      echo "tpsim: apt-get could not install ${missing[*]} (its last lines are above)" >&2
      return 1
    fi
  fi
  rm -f "$log"
}
