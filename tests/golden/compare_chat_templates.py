#!/usr/bin/env python3
"""Compares this evaluator of chat templates with transformers, byte for byte.

    tests/golden/compare_chat_templates.py TEMPLATES… [--program build/release/tests/chat/render] [-v]

TEMPLATES are .jinja files, directories of such, or model directories with a tokenizer_config.json. Needs
`transformers` in an environment of your own; docs/chat.md records the result. Where transformers refuses a
conversation, so must the evaluator, whatever its words are.
"""

import argparse
import copy
import json
import subprocess
import sys
from pathlib import Path

import jinja2
from transformers.utils import chat_template_utils

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "chat")]

from conversations import conversations  # noqa: E402
from yalm_convert.chat_template import read_chat, special_tokens  # noqa: E402

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def templates(paths):
    """(name, {name of the template: text}, settings)."""
    for path in paths:
        if (path / "tokenizer_config.json").exists():
            settings = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
            text = settings.get("chat_template")
            if (path / "chat_template.jinja").exists():
                text = (path / "chat_template.jinja").read_text(encoding="utf-8")
            yield path.name, {"default": text}, settings
        elif path.is_dir():
            yield from templates(sorted(path.glob("*.jinja")))
        else:
            yield path.name, {"default": path.read_text(encoding="utf-8")}, TOKENS


def truth(text, variables, tokens):
    """(what transformers renders, None), or (None, why it does not)."""
    variables = {**tokens, **copy.deepcopy(variables)}
    try:
        messages = chat_template_utils._normalize_chat_messages(variables.pop("messages"))
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[messages], chat_template=text, **variables
        )
        return rendered[0], None
    except (jinja2.TemplateError, TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        return None, f"{type(error).__name__}: {error}"


def rendered(program, chat, asked):
    lines = [json.dumps({"chat": chat})] + [json.dumps(variables) for _, variables in asked]
    out = subprocess.run([program], input="\n".join(lines).encode(), capture_output=True, check=True).stdout
    answers, at = [], 0
    while at < len(out):
        end = out.index(b"\n", at)
        head, at = out[at:end].decode(), end + 1
        if head.startswith("ok "):
            length = int(head[3:])
            answers.append((out[at : at + length].decode(), None))
            at += length + 1
        else:
            answers.append((None, head))
    return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("templates", type=Path, nargs="+")
    parser.add_argument("--program", default=str(ROOT / "build/release/tests/chat/render"))
    parser.add_argument("-v", action="store_true", dest="verbose")
    arguments = parser.parse_args()
    same = refused = wrong = beyond = files = 0
    for name, texts, settings in templates(arguments.templates):
        chat = read_chat(texts, settings)
        asked = list(conversations())
        if "refused" in chat:
            print(f"{name}: refused at conversion: {chat['refused']}")
            continue
        files += 1
        answers = rendered(arguments.program, chat, asked)
        assert len(answers) == len(asked), (name, answers[:1])
        for (what, variables), (text, error) in zip(asked, answers):
            expected, why = truth(texts["default"], variables, special_tokens(settings))
            if expected is None and text is None:
                refused += 1
            elif expected is None:
                beyond += 1
                if arguments.verbose:
                    print(f"{name}: {what}: transformers refuses it: {why}")
            elif text == expected:
                same += 1
            else:
                wrong += 1
                print(f"{name}: {what}: {error or 'another text'}")
                if arguments.verbose and text is not None:
                    at = next(
                        (i for i, (a, b) in enumerate(zip(text, expected)) if a != b), min(len(text), len(expected))
                    )
                    print(
                        f"  expected {expected[max(0, at - 60) : at + 60]!r}\n  found    {text[max(0, at - 60) : at + 60]!r}"
                    )
    print(
        f"{files} templates: {same} texts the same, {refused} refused by both, {beyond} refused by transformers alone, "
        f"{wrong} wrong"
    )
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
