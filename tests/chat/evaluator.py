"""What the engine's evaluator makes of a template."""

import json
import subprocess

from harness import BUILD, HANG, built
from yalm_convert import chat_template as converter

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
USER = [{"role": "user", "content": "Hi"}]


def evaluate(chat, asked):
    """What the engine makes of each of the variables: a text, or an error with its status."""
    program = built(BUILD / "tests/chat/render")
    lines = [chat if isinstance(chat, str) else json.dumps({"chat": chat})]
    lines += [variables if isinstance(variables, str) else json.dumps(variables) for variables in asked]
    done = subprocess.run([program], input="\n".join(lines).encode(), capture_output=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    out, answers = done.stdout, []
    while out:
        head, _, out = out.partition(b"\n")
        if head.startswith(b"ok "):
            length = int(head[3:])
            answers.append(out[:length].decode())
            out = out[length + 1 :]
        else:
            answers.append(head.decode())
    return answers


def chat_of(text, **more):
    return converter.read_chat({"default": text, **more}, TOKENS)


def one(text, variables=None):
    variables = {"messages": USER, **(variables or {})}
    return evaluate(chat_of(text), [variables])[0]
