#!/bin/sh
# Installs what yalm needs and the machine lacks: Debian and Ubuntu packages, and .venv with the pinned Python packages.
# Where all is there it does nothing. On other systems it names what is missing.
#
# usage: tools/setup.sh [build|test|lint|packages|arm64] [system|python]      build: compile and convert; test, lint, packages:
#        what these need besides; arm64: what `make test-arm64` does, whose libraries tools/arm64.sh fetches. system: the
#        system's packages alone; python: .venv alone, which may take as long as compiling many files
set -eu
cd "$(dirname "$0")/.."
stage=${1:-build}
case $stage in
build | test | lint | packages | arm64) ;;
*)
    echo "usage: tools/setup.sh [build|test|lint|packages|arm64]" >&2
    exit 2
    ;;
esac
part=${2:-all}
[ $# -le 2 ] || part=more
case $part in
all | system | python) ;;
*) echo "setup: one stage at a time; found $*" >&2 && exit 2 ;;
esac

CC=${CC:-cc}
CXX=${CXX:-g++}
CLANG=${CLANG:-clang}
PYTHON=${PYTHON:-python3}

say() { echo "setup: $*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }

# compiles 'SOURCE' COMMAND...: true where the command compiles and links it.
compiles() {
    source=$1
    shift
    has "$1" && echo "$source" | "$@" -x c - -o /dev/null >/dev/null 2>&1
}

header() { compiles "#include <stddef.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <$1>
int main(void) { return 0; }" "$CC" "-l$2"; }

# The newest clang's version where it is not installed yet: that of the package that `clang` stands for.
clang_version() {
    if has "$CLANG"; then
        "$CLANG" -dumpversion | cut -d. -f1
    else
        apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\).*/\1/p' | head -n 1
    fi
}

# The sanitizers' and libFuzzer's run-time library has had two names.
clang_runtime() {
    version=$(clang_version)
    if apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then
        echo "libclang-rt-$version-dev"
    else
        echo "libclang-common-$version-dev"
    fi
}

venv_works() {
    "$PYTHON" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1
}

# Names of the packages that are missing for the stage.
missing() {
    has make || echo make
    has pkg-config || echo pkg-config
    compiles '#include <pthread.h>
int main(void) { return 0; }' "$CC" -pthread || echo gcc libc6-dev
    header cjson/cJSON.h cjson || echo libcjson-dev
    compiles '#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
int main(void) { return 0; }' "$CC" -lpcre2-8 || echo libpcre2-dev
    header utf8proc.h utf8proc || echo libutf8proc-dev
    header xxhash.h xxhash || echo libxxhash-dev
    header microhttpd.h microhttpd || echo libmicrohttpd-dev
    header histedit.h edit || echo libedit-dev
    has "$PYTHON" || echo python3
    [ -x .venv/bin/python ] || venv_works || echo python3-venv
    if [ "$stage" = test ]; then
        compiles '#include <omp.h>
int main(void) { return omp_get_max_threads() < 1; }' "$CC" -fopenmp || case $($CC --version 2>/dev/null) in
        *clang*) echo "libomp-$($CC -dumpversion | cut -d. -f1)-dev" ;;
        *) echo gcc libc6-dev ;;
        esac
        header cmocka.h cmocka || echo libcmocka-dev
        has groff || echo groff-base
        # Ranks on several machines: tested where MPI can be had.
        { has mpicc && has mpirun; } || ! apt-cache show libopenmpi-dev >/dev/null 2>&1 || echo libopenmpi-dev openmpi-bin
        has "$CXX" || echo g++
        has "$CLANG" || echo clang
        compiles '#include <stddef.h>
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) { return data == NULL && size; }' \
            "$CLANG" -fsanitize=fuzzer,address || clang_runtime
    elif [ "$stage" = arm64 ]; then
        has aarch64-linux-gnu-gcc || echo gcc-aarch64-linux-gnu
        has qemu-aarch64 || echo qemu-user
    elif [ "$stage" = packages ]; then
        has dpkg-shlibdeps || echo dpkg-dev
        PATH=$PATH:/usr/sbin has debootstrap || ! apt-cache show debootstrap >/dev/null 2>&1 || echo debootstrap
    elif [ "$stage" = lint ]; then
        has clang-tidy || echo clang-tidy
    fi
}

install_packages() {
    if ! has apt-get; then
        say "this is neither Debian nor Ubuntu; please install, by whatever names this system has for them: $*"
        exit 1
    fi
    as_root=
    if [ "$(id -u)" != 0 ]; then
        if ! has sudo; then
            say "not root, and no sudo; please run as root: apt-get install $*"
            exit 1
        fi
        as_root=sudo
        [ -t 0 ] || as_root="sudo -n" # nobody there to type a password
    fi
    if [ -t 0 ] && [ -t 2 ]; then
        printf 'setup: install these Debian packages: %s [Y/n]? ' "$*" >&2
        read -r answer || answer=n
        case $answer in [nN]*) exit 1 ;; esac
    fi
    say "installing Debian packages: $*"
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-upgrade --no-install-recommends "$@" >&2
}

update_index() {
    has apt-get || return 0
    as_root=
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    say "apt-get update"
    $as_root apt-get update -q >/dev/null 2>&1 || true # install_packages says what is wrong, if anything is
}

packages() {
    found=$(missing | tr '\n' ' ')
    [ -z "$found" ] && return
    update_index
    # shellcheck disable=SC2046 # words are meant to split; the clang run-time's name needs the fresh index
    install_packages $(missing)
    found=$(missing | tr '\n' ' ')
    if [ -n "$found" ]; then
        say "still missing after the installation: $found"
        exit 1
    fi
}

# .venv holds the pinned packages; .venv/stamp the checksum of what was asked for, so that a second run has nothing to do.
python_packages() {
    files=tools/requirements.txt
    [ "$stage" = build ] || files="$files tests/requirements.txt"
    [ "$stage" != packages ] || files="$files packaging/requirements.txt"
    stamp=.venv/$stage.stamp
    # shellcheck disable=SC2086
    wanted=$(cat $files | cksum)
    [ -x .venv/bin/python ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return
    if ! .venv/bin/python -c 'import pip' >/dev/null 2>&1; then
        say "making .venv"
        rm -rf .venv
        "$PYTHON" -m venv .venv >&2
    fi
    say "installing into .venv: $files"
    arguments=
    for file in $files; do
        arguments="$arguments -r $file"
    done
    # shellcheck disable=SC2086
    .venv/bin/python -m pip install -q --disable-pip-version-check $arguments >&2 </dev/null
    echo "$wanted" >"$stamp"
}

[ "$part" = python ] || packages
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || { say "Python 3.9 or later is needed" && exit 1; }
[ "$part" = system ] || python_packages
if [ "$stage" = arm64 ]; then
    tools/arm64.sh
fi
