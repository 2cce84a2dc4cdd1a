# Shared by the scripts of this folder; to be sourced, not run.
# shellcheck shell=bash disable=SC2034

# The root of the checkout, whatever the current folder is.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT
# Debian keeps servers where an ordinary user's PATH does not look.
export PATH="$PATH:/usr/sbin:/sbin"

# The packages with the server's and the tools' programs alone. mariadb-server
# would bring a service with it and start it; nothing here touches one that runs.
readonly MARIADB_PACKAGES=(mariadb-server-core mariadb-client-core mariadb-backup)

step() { printf '\n==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Runs a command up to three times: mirrors and registries have bad moments.
retry() {
    local try
    for try in 1 2 3; do
        "$@" && return
        [[ $try == 3 ]] || sleep $((try * 5))
    done
    return 1
}

# As root: directly, or through sudo.
as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "not root and no sudo; please run as root: $*"
    fi
}

# Installs Debian packages unless all programs named before `--` are there.
#   need PROGRAM... -- PACKAGE...
need() {
    local missing=()
    while [[ $1 != -- ]]; do
        command -v "$1" >/dev/null || missing+=("$1")
        shift
    done
    shift
    [[ ${#missing[@]} == 0 ]] && return
    command -v apt-get >/dev/null ||
        die "missing ${missing[*]}; install the equivalent of Debian's $*"
    note "installing $* (for ${missing[*]})"
    apt_install "$@" || die "cannot install $*"
    hash -r
}

need_rust() {
    command -v cargo >/dev/null || die "Rust is missing: install rustup; rust-toolchain.toml says which Rust"
    need cc -- build-essential
    note "$(cargo --version)"
}

# The package lists may be absent or old: they are fetched only when needed.
apt_install() {
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends)
    as_root "${install[@]}" "$@" >/dev/null 2>&1 && return
    retry as_root apt-get update -q >/dev/null && retry as_root "${install[@]}" "$@" >/dev/null
}

# Size of a number of bytes, for people.
human() { numfmt --to=iec-i --suffix=B --format=%.1f "$1"; }
