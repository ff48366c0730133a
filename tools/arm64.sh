#!/bin/sh
# What `make VARIANT=arm64` needs besides the compiler, and the emulator besides itself: Debian's arm64 libraries, unpacked to
# build/arm64/root. They are fetched with an index of packages of its own, so that nothing of the system changes. Where all is
# there it does nothing.
#
# usage: tools/arm64.sh
set -eu
cd "$(dirname "$0")/.."
root=build/arm64/root
stamp=$root/stamp

# What is compiled against; what these need in turn apt finds.
headers="libcjson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libmicrohttpd-dev libedit-dev libcmocka-dev"

say() { echo "arm64: $*" >&2; }

wanted=$(cksum <tools/arm64.sh)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    say "this is neither Debian nor Ubuntu: please put arm64's $headers, with what they need, below $root," \
        "and \"$wanted\" into $stamp"
    exit 1
fi
state=$PWD/build/arm64/apt
rm -rf "$root" "$state"
mkdir -p "$root" "$state/lists/partial" "$state/archives/partial"
: >"$state/status" # no package is installed: all that is needed is fetched

apt() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root \
        -o APT::Install-Recommends=false -o Dir::Cache="$state" \
        -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" \
        -o Debug::NoLocking=true "$@"
}
say "fetching Debian's arm64 libraries to $root"
apt update >"$state/log" 2>&1 || true # what comes next says what is wrong, if anything is
# shellcheck disable=SC2086
if ! apt install -y --download-only $headers >>"$state/log" 2>&1; then
    say "apt-get found no arm64 packages (on Ubuntu they are on ports.ubuntu.com); the end of $state/log:"
    tail -n 5 "$state/log" >&2
    exit 1
fi
for package in "$state"/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done
# A link from / on leads out of the root: the linker would take the static library beside it.
for link in "$root"/usr/lib/aarch64-linux-gnu/*.so; do
    case $(readlink "$link") in /*) ln -sf "../../..$(readlink "$link")" "$link" ;; esac
done
rm -rf "$state"
rm -rf "$root/usr/share/doc" "$root/usr/share/man" "$root/usr/share/locale"
echo "$wanted" >"$stamp"
