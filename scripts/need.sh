# Sourced by the other scripts: gets the commands that they need, where that is possible.
# shellcheck shell=bash

need_updated=
# need COMMAND PACKAGE …: true when the command is there, or could be installed (Debian's packages, as root).
need() {
    local command=$1
    shift
    command -v "$command" >/dev/null && return
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "installing $*, because '$command' is missing"
        if [ -z "$need_updated" ]; then
            apt-get update -qq || return 1
            need_updated=yes
        fi
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null && return
    fi
    echo "${0##*/}: '$command' is missing; install it (on Debian, as root: apt-get install $*)" >&2
    return 1
}

# need_rust: cargo, also from where rustup puts it.
need_rust() {
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH=$HOME/.cargo/bin:$PATH
    fi
    need cargo rustup || {
        echo "${0##*/}: or install Rust by the instructions of www.rust-lang.org and run this again" >&2
        return 1
    }
}

# need_openssl: what the launcher's built-in ssh client (package gasnetrun-ibv-ssh, a library that is opened at run time) is built
# with. It is linked statically where the archives are, so that the client works where another OpenSSL is installed, or none.
# False: build all else without that package.
need_openssl() {
    local folder
    need pkg-config pkg-config libssl-dev || return 1
    pkg-config --exists openssl || need openssl-headers libssl-dev || return 1
    folder=$(pkg-config --variable=libdir openssl)
    if [ -e "$folder/libssl.a" ]; then
        export OPENSSL_STATIC=1 LIBZ_SYS_STATIC=1 OPENSSL_LIB_DIR="$folder"
        OPENSSL_INCLUDE_DIR=$(pkg-config --variable=includedir openssl)
        export OPENSSL_INCLUDE_DIR
    fi
}
