#!/bin/sh
# What yalm's quantised forms lose beside llama.cpp's, from one run. Builds llama.cpp under build/peer/ from its source
# archive, once (bench/peers.sh). Then bench/quantisation_quality.py makes the forms and judges them all by yalm.
#
# usage: bench/quantisation_quality.sh MODEL.gguf|FOLDER… --text FILE… [options of bench/quantisation_quality.py]
# LLAMA_CPP_BUILD=FOLDER names a build that exists already: a folder of llama-quantize and llama-imatrix.
set -eu
cd "$(dirname "$0")/.."
JOBS=${JOBS:-$(nproc)}
PROGRAMS="llama-quantize llama-imatrix"
python=.venv/bin/python

say() { echo "quality: $*" >&2; }
fail() { say "$*" && exit 1; }

. bench/peers.sh

tools/setup.sh build
[ -x yalm ] || make -s -j"$JOBS"
llama_cpp
built "$LLAMA_CPP_BUILD" || fail "$LLAMA_CPP_BUILD: one of $PROGRAMS is missing"
exec $python bench/quantisation_quality.py --peer "$LLAMA_CPP_BUILD" "$@"
