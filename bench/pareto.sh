#!/bin/sh
# Speed against quality, yalm's forms of a real model beside llama.cpp's, from one run. Builds llama.cpp under build/peer/
# from its source archive, once (bench/peers.sh). Then bench/pareto.py makes the forms, judges them and times them in turns.
#
# usage: bench/pareto.sh MODEL.gguf|FOLDER --text FILE [options of bench/pareto.py]
# LLAMA_CPP_BUILD=FOLDER names a build that exists already: a folder of llama-bench, llama-quantize and llama-imatrix.
set -eu
cd "$(dirname "$0")/.."
JOBS=${JOBS:-$(nproc)}
PROGRAMS="llama-bench llama-quantize llama-imatrix"
python=.venv/bin/python

say() { echo "pareto: $*" >&2; }
fail() { say "$*" && exit 1; }

. bench/peers.sh

tools/setup.sh build
[ -x yalm ] || make -s -j"$JOBS"
llama_cpp
built "$LLAMA_CPP_BUILD" || fail "$LLAMA_CPP_BUILD: one of $PROGRAMS is missing"
exec $python bench/pareto.py --peer "$LLAMA_CPP_BUILD" "$@"
