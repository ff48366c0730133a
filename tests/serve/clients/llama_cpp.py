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
import re
import shutil
import sys
import tempfile
from pathlib import Path

# Patterns of tests, by what they want and this server does not offer.
NOT_OFFERED = {
    "test_(embedding|rerank|vision_api|lora|router|mcp_servers|proxy|tools_builtin|sleep|compat_gcp|stream)\\.py": "routes",
    "test_(speculative|slot_save|kv_keep_only_active)\\.py": "options, states of sessions in files",
    "(local_media_file|vision_base64|vision_format|with_image|embedding_prompt_is_counted|unified)": (
        "pictures, embeddings, one cache for all sessions"
    ),
    "test_(cors_origins|cors_proxy|access_static|no_ui|server_slots|server_multiple|load_split|.*aliases)": "options, files",
    "test_server_props": "a path that ends in .gguf",
    "test_(metrics_disabled|metrics_prometheus|metrics_prompt|metrics_predicted_total|metrics_slots)": "names of counters",
    "(return_progress|prompt_progress|llama_telemetry)": "return_progress",
    "(__verbose|verbose_debug|test_chat_template|template_continue_final_message_vllm)": "__verbose",
    "(post_sampling|backend_sampling)": "post_sampling_probs",
    "test_ignore_eos\\.py|test_completion_stream.(I|Write)": "settings of other samplers, biases that a setting becomes",
    "test_completion_response_fields": "response_fields",
    "test_correct_api_key": "/completions in llama.cpp's own form: here it is OpenAI's",
    "test_ctx_shift_enabled": "context shift",
    "test_apply_chat_template|test_reasoning|test_date_inside": "named templates, variables that transformers does not set",
}


def pytest_configure():
    sys.path.insert(0, os.getcwd())
    import utils

    utils.ServerPreset.load_all = staticmethod(lambda: None)  # it fetches models
    if os.environ.get("TEXTS") != "compare":  # what is drawn depends on the random numbers
        utils.match_regex = lambda regex, text: isinstance(text, str) and text != ""


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if any(re.search(each, item.nodeid) for each in NOT_OFFERED)]
    left_out += [item for item in items if item.get_closest_marker("slow") and item not in left_out]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


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


# llama.cpp takes ChatML where a model has no template, and JSON for calls.
CHATML = """{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def main(words):
    options = {}
    while words:
        word = words.pop(0)
        options[word] = words.pop(0) if words and not words[0].startswith("--") else ""
    template = options.get("--chat-template", "chatml")
    template = CHATML if template == "chatml" else template
    if "--chat-template-file" in options:
        template = Path(options["--chat-template-file"]).read_text()
    if "bos_token" not in template:
        template = "{{ bos_token }}" + template  # llama.cpp puts it before any prompt
    slots = int(options.get("--parallel", 4))
    model = prepare(template, options.get("--alias") or "model", "-infill" in options.get("--hf-repo", ""))
    command = [os.environ["YALM"], str(model), "-m", "serve", "--parallel", str(slots)]
    for theirs, ours in (("--port", "--port"), ("--host", "--host"), ("--temp", "--temp"), ("--seed", "--seed")):
        command += [ours, options[theirs]]
    context = int(options.get("--ctx-size", 512))
    command += ["-T", str(context if "--kv-unified" in options else context // slots)]
    if "--api-key" in options:
        handle, path = tempfile.mkstemp()
        with open(handle, "w") as keys:
            keys.write(options["--api-key"].replace(",", "\n") + "\n")
        command += ["--api-key-file", path]
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
