# Shared by the scripts of this folder; to be sourced, not run.
# shellcheck shell=bash disable=SC2034

# Root of the checkout, independent of the current folder.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT
# Debian installs servers in folders that an ordinary user's PATH lacks.
export PATH="$PATH:/usr/sbin:/sbin"

# The packages with only the programs of the server and the tools. mariadb-server would install
# and start a service; nothing here touches a running service.
readonly MARIADB_PACKAGES=(mariadb-server-core mariadb-client-core mariadb-backup)

step() { printf '\n==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Runs a command up to three times, because mirrors and registries fail now and then.
retry() {
    local try
    for try in 1 2 3; do
        "$@" && return
        [[ $try == 3 ]] || sleep $((try * 5))
    done
    return 1
}

# Runs a command as root: directly, or through sudo.
as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "sudo is missing; run as root: $*"
    fi
}

# Installs Debian packages unless all programs named before `--` exist.
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
    command -v cargo >/dev/null || die "Rust is missing: install rustup; rust-toolchain.toml names the version"
    need cc -- build-essential
    note "$(cargo --version)"
}

# Installs packages. The package lists may be missing or old: they are updated only if needed.
apt_install() {
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends)
    as_root "${install[@]}" "$@" >/dev/null 2>&1 && return
    retry as_root apt-get update -q >/dev/null && retry as_root "${install[@]}" "$@" >/dev/null
}

# Prints the mirror of this system's packages.
mirror() {
    local found
    found=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' 2>/dev/null |
        sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
    [[ -n $found ]] && echo "$found"
}

# Prints a number of bytes with a unit, for people.
human() { numfmt --to=iec-i --suffix=B --format=%.1f "$1"; }
