"""Runs the yalm program as a user does: arguments in, bytes and an exit code out."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import hf
import pytest
from harness import HANG, convert_directory

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory):
    """The user's cache and history stay as they are."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        os.environ[name] = str(folder / name)
    os.environ["YALM_CONVERTER"] = str(ROOT / "tools")  # the program of build/asan has none beside it


class Program:
    """The program, with a model that is put in front of the arguments."""

    def __init__(self, binary, model):
        self.binary, self.model = str(binary), str(model)

    def command(self, *args):
        return [self.binary, self.model, *map(str, args)]

    def __call__(self, *args, stdin=b"", env=None, timeout=HANG):
        environment = {**os.environ, **(env or {})}
        return subprocess.run(
            self.command(*args), check=False, input=stdin, capture_output=True, timeout=timeout, env=environment
        )

    def ok(self, *args, **more):
        """Standard output of a run that must succeed."""
        done = self(*args, **more)
        assert done.returncode == 0, (args, done.returncode, done.stderr.decode(errors="replace"))
        return done.stdout

    def fails(self, code, *args, **more):
        """The one line that a run says as it fails with `code`; it must write nothing on standard output."""
        done = self(*args, **more)
        text = done.stderr.decode(errors="replace")
        assert done.returncode == code, (args, done.returncode, text)
        assert done.stdout == b"", args
        lines = [line for line in text.splitlines() if line.startswith("yalm: ")]
        assert len(lines) == 1, text
        return lines[0]


@pytest.fixture(scope="session")
def program(yalm, fable):
    return Program(yalm, fable)


@pytest.fixture(scope="session")
def bare(yalm):
    """The program without a model in front."""

    def run(*args, **more):
        return subprocess.run([str(yalm), *map(str, args)], check=False, capture_output=True, timeout=HANG, **more)

    return run


@pytest.fixture(scope="session")
def ids_only(yalm, tmp_path_factory):
    """The program with the bundled model, converted from a directory without a tokenizer."""
    source = tmp_path_factory.mktemp("ids_only") / "fable-4m"
    source.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(ROOT / "models" / "fable-4m" / name, source)
    model = source.parent / "ids_only.bin"
    command = [sys.executable, str(ROOT / "tools" / "convert.py"), str(source), str(model)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0 and "tokenizer" in done.stderr, done.stderr
    return Program(yalm, model)


CHAT_TEMPLATE = """{{ bos_token }}{% for message in messages -%}
{% if message.role == 'tool' %}{{ raise_exception('there are no tools here') }}{% endif -%}
{{ message.role }}: {{ message.content }}
{% endfor %}
{% if add_generation_prompt %}{{ opening | default('assistant:') }}{% endif %}"""


def chatty_program(yalm, folder, **changes):
    """The program with the bundled model, converted with a chat template, and with changes to its config.json."""
    source = folder / "chatty-4m"
    shutil.copytree(
        ROOT / "models" / "fable-4m", source, ignore=shutil.ignore_patterns("make", "reference", "heldout.txt")
    )
    (source / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (source / "config.json").write_text(json.dumps({**config, **changes}), encoding="utf-8")
    model = folder / "chatty.bin"
    command = [sys.executable, str(ROOT / "tools" / "convert.py"), str(source), str(model)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Program(yalm, model)


@pytest.fixture(scope="session")
def chatty(yalm, tmp_path_factory):
    return chatty_program(yalm, tmp_path_factory.mktemp("chatty"))


@pytest.fixture(scope="session")
def windowed(yalm, tmp_path_factory):
    """The same with a sliding window of 16 positions."""
    changes = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 16}
    return chatty_program(yalm, tmp_path_factory.mktemp("windowed"), **changes)


# What the model below says: each token once, so that a token alone decides about the next one.
SCRIPT = [
    "<|start|>assistant",
    "<|channel|>analysis<|message|>",
    "Is it?",
    "<|end|>",
    "<|start|>assistant<|channel|>final<|message|>",
    "It is.",
]
CHANNELS = """{%- for m in messages -%}
{%- if '<|channel|>' in m.content or '<|message|>' in m.content %}{{ raise_exception('content with channels') }}{% endif -%}
<|start|>{{ m.role }}{% if m.thinking %}<|channel|>analysis: {{ m.thinking }}{% endif %}<|message|>{{ m.content }}<|end|>
{%- endfor -%}<|start|>assistant"""


@pytest.fixture(scope="session")
def thinker(yalm, tmp_path_factory):
    """The program with a model that writes channels, as gpt-oss does: whatever it is asked, it thinks "Is it?" and answers "It
    is."."""
    source = tmp_path_factory.mktemp("thinker") / "thinker"
    shutil.copytree(
        ROOT / "models/fable-4m", source, ignore=shutil.ignore_patterns("make", "reference", "*.txt", "*.model")
    )
    (source / "chat_template.jinja").write_text(CHANNELS, encoding="utf-8")
    n_vocab, width, one = 4096, 256, b"\x80\x3f"  # 1 in bfloat16
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    marks = [
        {**tokenizer["added_tokens"][2], "id": n_vocab + i, "content": text, "special": "<|" in text}
        for i, text in enumerate(SCRIPT)
    ]
    tokenizer["added_tokens"] += marks
    (source / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    hf.edit_json(source / "config.json", vocab_size=n_vocab + len(SCRIPT), tie_word_embeddings=False)
    tensors = hf.read_tensors(source)
    for name, entry in tensors.items():  # the residual stream stays what the embedding made it
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            entry[2] = bytes(len(entry[2]))
    embedding, head = (bytearray((n_vocab + len(SCRIPT)) * width * 2) for _ in range(2))
    for i in range(len(SCRIPT)):
        following = n_vocab + i + 1 if i + 1 < len(SCRIPT) else 2  # </s>
        for matrix, row in ((embedding, n_vocab + i), (head, following)):
            at = (row * width + i) * 2
            matrix[at : at + 2] = one
    for name, data in (("model.embed_tokens.weight", embedding), ("lm_head.weight", head)):
        tensors[name] = ["BF16", [n_vocab + len(SCRIPT), width], bytes(data)]
    tensors["model.norm.weight"][2] = one * width
    hf.write_tensors(source / "model.safetensors", tensors)
    return Program(yalm, convert_directory(source, source.parent / "thinker.bin"))
