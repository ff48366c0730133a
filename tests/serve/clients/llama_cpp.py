#!/usr/bin/env python3
"""llama.cpp's own tests of its server, run against this one.

    cd llama.cpp/tools/server/tests     # as in the source archive of PyPI's llama-cpp-python
    export YALM=…/yalm STORIES=…        # the program, and stories260K as a directory of Hugging Face's
    PYTHONPATH=…/tests/serve/clients LLAMA_SERVER_BIN_PATH=…/tests/serve/clients/llama_cpp.py \\
        python -m pytest -p llama_cpp unit

As a plugin of pytest it leaves out what is not offered, by the lists below. As a program it takes llama-server's options.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NOT_OFFERED = {}


def pytest_configure():
    sys.path.insert(0, os.getcwd())
    import utils

    utils.ServerPreset.load_all = staticmethod(lambda: None)  # it fetches models


def change(file, **members):
    text = json.loads(file.read_text())
    file.unlink()
    file.write_text(json.dumps({**text, **members}))


def add_marks(tokenizer):
    """Tokens for text in the middle, in the place of the vocabulary's last characters."""
    text = json.loads(tokenizer.read_text())
    pieces = {id: piece for piece, id in text["model"]["vocab"].items()}
    for id, name in zip(range(len(pieces) - 4, len(pieces)), ("fim_prefix", "fim_suffix", "fim_middle", "file_sep")):
        pieces[id] = f"<|{name}|>"
        text["added_tokens"].append({**text["added_tokens"][0], "id": id, "content": pieces[id]})
    change(
        tokenizer,
        added_tokens=text["added_tokens"],
        model={**text["model"], "vocab": {piece: id for id, piece in pieces.items()}},
    )


def prepare(template, name, infill):
    """stories260K of this name with a chat template."""
    key = hashlib.sha256(f"{template}{infill}".encode()).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"stories-{key}" / name
    if not place.exists():
        making = Path(tempfile.mkdtemp()) / "model"
        unused = ("reference", "make", "heldout.txt", "tokenizer.model" if infill else "")
        shutil.copytree(os.environ["STORIES"], making, ignore=shutil.ignore_patterns(*unused))
        making.chmod(0o755)
        change(making / "tokenizer_config.json", chat_template=template)
        if infill:
            add_marks(making / "tokenizer.json")
        place.parent.mkdir(exist_ok=True)
        making.rename(place)
    return place


# llama.cpp takes it where a model has none.
CHATML = """{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def main(words):
    options = {}
    while words:
        word = words.pop(0)
        options[word] = words.pop(0) if words and not words[0].startswith("--") else ""
    template = CHATML
    if "--chat-template-file" in options:
        template = Path(options["--chat-template-file"]).read_text()
    slots = int(options.get("--parallel", 4))
    model = prepare(template, options.get("--alias") or "model", "-infill" in options.get("--hf-repo", ""))
    command = [os.environ["YALM"], str(model), "-m", "serve", "--parallel", str(slots)]
    for theirs, ours in (("--port", "--port"), ("--host", "--host"), ("--temp", "--temp"), ("--seed", "--seed")):
        command += [ours, options[theirs]]
    context = int(options.get("--ctx-size", 512))
    command += ["-T", str(context if "--kv-unified" in options else context // slots)]
    if "--api-key" in options:
        keys = tempfile.NamedTemporaryFile("w", delete=False)
        keys.write(options["--api-key"].replace(",", "\n") + "\n")
        keys.close()
        command += ["--api-key-file", keys.name]
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
