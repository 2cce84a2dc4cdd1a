# Shared by scripts/try-package and scripts/try-units; to be sourced, not run.
# shellcheck shell=bash disable=SC2034

readonly ACCESS_KEY=backup SECRET_KEY=backupsecret
PASSED=0 FAILED=0

skip() {
    echo "skipped: $*"
    exit 77
}

target_dir() {
    cargo metadata --no-deps --format-version=1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
}

# Creates a clean Debian in $BASE, once.
make_base() {
    [[ ! -e $BASE.made ]] || return 0
    local mirror
    mirror=$(mirror) || skip "no mirror of Debian in apt's sources"
    note "creating $BASE (takes a minute)"
    rm -rf "$BASE"
    debootstrap --variant=minbase "$SUITE" "$BASE" "$mirror" >"$BASE.log" 2>&1 ||
        skip "debootstrap has failed: $BASE.log"
    touch "$BASE.made"
}

passed() {
    note "$*"
    PASSED=$((PASSED + 1))
}

failed() {
    note "FAILED: $*"
    FAILED=$((FAILED + 1))
}

# Lets a new root use this machine's network and mirror, and keeps its services from starting.
ready_root() { # ROOT
    cp /etc/resolv.conf "$1/etc/resolv.conf"
    cp /etc/apt/apt.conf.d/*proxy* "$1/etc/apt/apt.conf.d/" 2>/dev/null || true
    echo "127.0.0.1 localhost $(uname -n)" >"$1/etc/hosts"
    install -m 755 /dev/stdin "$1/usr/sbin/policy-rc.d" <<<$'#!/bin/sh\nexit 101'
    # As a person who answers apt's question with Enter.
    echo 'APT::Get::Assume-Yes "true";' >"$1/etc/apt/apt.conf.d/90yes"
}

# Runs a command in $CHROOT.
there() {
    chroot "$CHROOT" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

# SeaweedFS, with one bucket called `backup`.
start_store() {
    STORE_PORT=$((20000 + RANDOM % 10000))
    mkdir "$WORK/store"
    printf '{"identities":[{"name":"backup","credentials":[{"accessKey":"%s","secretKey":"%s"}],"actions":["Admin","Read","Write","List","Tagging"]}]}' \
        "$ACCESS_KEY" "$SECRET_KEY" >"$WORK/s3.json"
    local port=$STORE_PORT
    "$TOOLS/weed" server -dir="$WORK/store" -ip=127.0.0.1 -ip.bind=127.0.0.1 -s3 -s3.port="$port" \
        -s3.port.grpc=$((port + 1)) -s3.config="$WORK/s3.json" -s3.autoCreateBucket=true -s3.port.iceberg=0 \
        -s3.port.lance=0 -master.port=$((port + 2)) -master.port.grpc=$((port + 3)) -master.telemetry=false \
        -master.volumeSizeLimitMB=1024 -volume.port=$((port + 4)) -volume.port.grpc=$((port + 5)) -volume.max=100 \
        -filer.port=$((port + 6)) -filer.port.grpc=$((port + 7)) >"$WORK/store.log" 2>&1 </dev/null &
    local try
    for ((try = 0; try < 60; try++)); do
        "$TOOLS/weed" shell -master="127.0.0.1:$((port + 2)).$((port + 3))" <<<'s3.bucket.create -name backup' \
            >>"$WORK/store.log" 2>&1 || true
        [[ $(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/backup/") =~ 200|403 ]] && return
        sleep 1
    done
    tail "$WORK/store.log" >&2
    die "the S3 server does not start"
}
