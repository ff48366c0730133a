#!/bin/sh
# yalm and llama.cpp side by side, from one run, in turns. Builds llama.cpp under build/peer/ from the source archive of
# llama-cpp-python on PyPI, once; then bench/compare.py writes the same random weights for both and times them.
#
# usage: bench/compare_llama_cpp.sh [options of bench/compare.py]
#        bench/compare_llama_cpp.sh --types f16,q8_0,q4_0 --rounds 7
# LLAMA_CPP_BUILD=FOLDER names a build that exists already: the folder of llama-bench and llama-quantize.
set -eu
cd "$(dirname "$0")/.."
VERSION=0.3.36
JOBS=${JOBS:-$(nproc)}
python=.venv/bin/python

say() { echo "compare: $*" >&2; }

tools/setup.sh build
[ -x yalm ] || make -s -j"$JOBS"

build_peer() {
    peer=build/peer/llama_cpp_python-$VERSION
    LLAMA_CPP_BUILD=$peer/build/bin
    [ -x "$LLAMA_CPP_BUILD/llama-bench" ] && [ -x "$LLAMA_CPP_BUILD/llama-quantize" ] && return
    command -v c++ >/dev/null || { say "llama.cpp needs a C++ compiler (Debian: g++)" && exit 1; }
    mkdir -p build/peer
    if [ ! -d "$peer/vendor/llama.cpp" ]; then
        say "fetching llama-cpp-python $VERSION (75 MB; about 1 GB when built)"
        $python -m pip download -q --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
            -d build/peer "llama-cpp-python==$VERSION" >&2
        tar -xzf build/peer/llama_cpp_python-$VERSION.tar.gz -C build/peer
    fi
    cmake=cmake
    if ! command -v cmake >/dev/null; then
        [ -x build/peer/venv/bin/cmake ] || {
            $python -m venv build/peer/venv
            build/peer/venv/bin/pip install -q --disable-pip-version-check cmake >&2
        }
        cmake=build/peer/venv/bin/cmake
    fi
    say "building llama.cpp (some minutes; log in build/peer/build.log)"
    {
        $cmake -S "$peer/vendor/llama.cpp" -B "$peer/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_OPENMP=ON \
            -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF &&
            $cmake --build "$peer/build" -j "$JOBS" --target llama-bench llama-quantize
    } >build/peer/build.log 2>&1 || { say "it failed; the end of build/peer/build.log:" && tail -n 5 build/peer/build.log >&2 && exit 1; }
}

[ -n "${LLAMA_CPP_BUILD:-}" ] || build_peer
for program in llama-bench llama-quantize; do
    [ -x "$LLAMA_CPP_BUILD/$program" ] || { say "$LLAMA_CPP_BUILD/$program is missing" && exit 1; }
done
exec $python bench/compare.py --peer "$LLAMA_CPP_BUILD" "$@"
