# shellcheck shell=sh disable=SC2154 # what is set by the shell that reads this
# The peers' programs, built under build/peer/ from the source archives of llama-cpp-python and ik-llama-cpp-python on PyPI,
# once. To be sourced in the repository's root, by a shell that has set JOBS, PROGRAMS (which are wanted), $python, say and
# fail. The functions llama_cpp and ik_llama_cpp set LLAMA_CPP_BUILD and IK_LLAMA_CPP_BUILD to the folders of the programs,
# unless they are set.

# fetch PACKAGE VERSION SHA256: unpacks it as build/peer/ARCHIVE, whole or not at all, if it is what it was when this was
# written.
fetch() {
    archive=$(echo "$1" | tr - _)-$2
    [ -d "build/peer/$archive" ] && return
    mkdir -p build/peer
    if [ ! -f "build/peer/$archive.tar.gz" ]; then
        say "fetching $1 $2"
        echo "$1==$2 --hash=sha256:$3" >build/peer/wanted.txt
        $python -m pip download -q --disable-pip-version-check --no-deps --no-binary "$1" -d build/peer \
            -r build/peer/wanted.txt >&2
    fi
    echo "$3  build/peer/$archive.tar.gz" | sha256sum -c --quiet >&2 ||
        fail "build/peer/$archive.tar.gz is not what it should be: remove it"
    rm -rf build/peer/unpacked
    mkdir build/peer/unpacked
    tar -xzf "build/peer/$archive.tar.gz" --no-same-owner -C build/peer/unpacked
    mv "build/peer/unpacked/$archive" "build/peer/$archive"
    rm -rf build/peer/unpacked build/peer/wanted.txt
}

find_cmake() {
    cmake=cmake
    command -v cmake >/dev/null && return
    cmake=build/peer/venv/bin/cmake
    [ -x $cmake ] && return
    $python -m venv build/peer/venv
    build/peer/venv/bin/pip install -q --disable-pip-version-check cmake >&2
}

# build SOURCE FOLDER OPTION…: PROGRAMS in FOLDER/bin.
build() {
    source=$1 folder=$2
    shift 2
    command -v c++ >/dev/null || fail "llama.cpp needs a C++ compiler (Debian: g++)"
    find_cmake
    say "building $source (many minutes; log in $folder.log)"
    {
        # shellcheck disable=SC2086 # several words
        $cmake -S "$source" -B "$folder" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_OPENMP=ON -DLLAMA_CURL=OFF \
            -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF "$@" &&
            $cmake --build "$folder" -j "$JOBS" --target $PROGRAMS
    } >"$folder.log" 2>&1 || { tail -n 5 "$folder.log" >&2 && fail "it failed; above the end of $folder.log"; }
}

built() {
    for program in $PROGRAMS; do
        [ -x "$1/$program" ] || return 1
    done
}

llama_cpp() {
    [ -z "${LLAMA_CPP_BUILD:-}" ] || return 0
    package=build/peer/llama_cpp_python-0.3.36
    LLAMA_CPP_BUILD=$package/build/bin
    built "$LLAMA_CPP_BUILD" && return
    fetch llama-cpp-python 0.3.36 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
    # gcc 12's intrinsic that configures AMX's tiles does not say that it reads the whole configuration, and llama.cpp crashes.
    compiler=
    if grep -qw amx_tile /proc/cpuinfo && [ "$(gcc -dumpversion 2>/dev/null | cut -d. -f1)" = 12 ]; then
        command -v clang++ >/dev/null ||
            fail "this gcc breaks llama.cpp's AMX: install clang and libomp-dev, or try --peer ik_llama.cpp"
        say "llama.cpp is built with clang: this gcc breaks its AMX"
        compiler="-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++"
    fi
    # shellcheck disable=SC2086 # two words
    build $package/vendor/llama.cpp $package/build -DLLAMA_BUILD_EXAMPLES=OFF $compiler
}

# Its archive lacks what the Python package itself does not need: the script that writes common/build-info.cpp, which names
# the version. Kernels for quantised caches are left out, since the comparison's is fp16: they take longest to compile.
ik_llama_cpp() {
    [ -z "${IK_LLAMA_CPP_BUILD:-}" ] || return 0
    package=build/peer/ik_llama_cpp_python-0.1.5
    IK_LLAMA_CPP_BUILD=$package/build/bin
    built "$IK_LLAMA_CPP_BUILD" && return
    fetch ik-llama-cpp-python 0.1.5 33c67eb99e4dcab5e611050433243815709b8b3067753f9ce18375013cf002ad
    mkdir -p $package/vendor/ik_llama.cpp/common/cmake
    cat >$package/vendor/ik_llama.cpp/common/cmake/build-info-gen-cpp.cmake <<'EOF'
set(BUILD_NUMBER 0)
set(BUILD_COMMIT "ik-llama-cpp-python-0.1.5")
configure_file(common/build-info.cpp.in common/build-info.cpp)
EOF
    build $package/vendor/ik_llama.cpp $package/build -DLLAMA_BUILD_EXAMPLES=ON -DGGML_IQK_FA_ALL_QUANTS=OFF
}
