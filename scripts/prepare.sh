# Brings a fresh Debian machine to where Hutch can be built. Sourced by ./run and ./test; run again, it
# finds everything in place and does nothing.
#
# Uses:  step TEXT, prepare_packages PACKAGE..., prepare_rust

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minimum_rust=1.90

step() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

fail() {
    printf 'error: %s\n\nhint: %s\n' "$1" "$2" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "this needs root: it makes namespaces, cgroups and file system images" "run it as root or with sudo"
command -v apt-get >/dev/null || fail "this script installs its tools with apt-get, which is not here" \
    "use Debian 12 or newer, or install the packages named in scripts/prepare.sh by hand"

# Installs those of the packages that are missing.
prepare_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    step "Installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

rust_version() { rustc --version 2>/dev/null | cut -d' ' -f2 | cut -d- -f1; }

rust_is_new_enough() {
    local found
    found=$(rust_version) && [ -n "$found" ] && [ "$(printf '%s\n' "$minimum_rust" "$found" | sort -V | head -n 1)" = "$minimum_rust" ]
}

# A Rust that is new enough: the one that is there, else Debian's.
prepare_rust() {
    [ -d "$HOME/.cargo/bin" ] && PATH=$HOME/.cargo/bin:$PATH
    rust_is_new_enough && return
    # Debian 12 keeps a current compiler for its browsers under these names.
    prepare_packages rustc-web cargo-web
    rust_is_new_enough || fail "Rust $minimum_rust or newer is needed, found '$(rust_version)'" "install it with rustup and run this again"
}

# What the build, the guest kernel and the images are made with.
prepare_build() {
    prepare_packages build-essential pkg-config git ca-certificates \
        bc bison flex m4 xz-utils zstd libelf-dev \
        mmdebstrap erofs-utils e2fsprogs debian-archive-keyring
    prepare_rust
}

# Node and npm run the official TypeScript client in the tests and bring Bun into devbox:1.
prepare_node() {
    command -v npm >/dev/null || prepare_packages nodejs npm
}

# Builds programs, guest and first image, once.
guest_is_ready=
prepare_guest() {
    [ -z "$guest_is_ready" ] || return 0
    step "Building Hutch (target/release/hutch)"
    cargo build --release --locked -p hutch-cli -p hutch-jail
    step "Building the guest: kernel, agent, boot image (target/guest)"
    cargo xtask guest
    step "Building the image debian:13"
    target/release/hutch images build debian:13
    guest_is_ready=yes
}
