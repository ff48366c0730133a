#!/bin/sh
# yalm beside llama.cpp and its fork ik_llama.cpp, from one run, in turns. Builds both under build/peer/ from the source
# archives of llama-cpp-python and ik-llama-cpp-python on PyPI, once; then bench/compare.py writes the same random weights for
# all and times them.
#
# usage: bench/compare_llama_cpp.sh [--peer llama.cpp|ik_llama.cpp|both] [options of bench/compare.py]
#        bench/compare_llama_cpp.sh --types f16,q8_0,q4_0 --rounds 7
# LLAMA_CPP_BUILD=FOLDER and IK_LLAMA_CPP_BUILD=FOLDER name builds that exist already: folders of llama-bench and
# llama-quantize.
set -eu
cd "$(dirname "$0")/.."
JOBS=${JOBS:-$(nproc)}
PROGRAMS="llama-bench llama-quantize"
python=.venv/bin/python

say() { echo "compare: $*" >&2; }
fail() { say "$*" && exit 1; }

# The peers' names out of the options; the others are compare.py's.
peers=both next=option
for word; do
    shift
    case $next,$word in
        peer,*) peers=$word next=option ;;
        *,--peer) next=peer ;;
        *,--peer=*) peers=${word#--peer=} ;;
        *) set -- "$@" "$word" ;;
    esac
done
[ $next = option ] || fail "--peer: expected llama.cpp, ik_llama.cpp or both"
case $peers in
    both) peers="ik_llama.cpp llama.cpp" ;; # each is put before the other options, so the last comes first
    llama.cpp | ik_llama.cpp) ;;
    *) fail "--peer: found '$peers', expected llama.cpp, ik_llama.cpp or both" ;;
esac

. bench/peers.sh

tools/setup.sh build
[ -x yalm ] || make -s -j"$JOBS"
for peer in $peers; do
    case $peer in
        llama.cpp)
            llama_cpp
            folder=$LLAMA_CPP_BUILD
            ;;
        *)
            ik_llama_cpp
            folder=$IK_LLAMA_CPP_BUILD
            ;;
    esac
    built "$folder" || fail "$folder: one of $PROGRAMS is missing"
    set -- --peer "$peer=$folder" "$@"
done
exec $python bench/compare.py "$@"
