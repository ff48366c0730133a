"""What is read of the calls that a chat template renders: the four of tests/speech/test_calls.py, and of other templates by
tests/golden/read_calls_of_templates.py.
"""

import json
import os
import re
import subprocess

from evaluator import chat_of, evaluate
from harness import BUILD, HANG, built

OBJECT = {"type": "object"}
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": name, "parameters": {**OBJECT, "properties": properties}},
    }
    for name, properties in {
        "get_weather": {
            "city": {"type": "string", "description": "where"},
            "days": {"type": "integer", "description": "how many"},
        },
        "book_table": {
            "name": {"type": "string", "description": "whose"},
            "guests": {"type": "integer", "description": "how many", "maximum": 10},
            "at": {**OBJECT, "description": "when and where", "properties": {"lat": {"type": "number"}}},
            "outside": {"type": "boolean", "description": "in the garden"},
            "wishes": {"type": "array", "description": "if any", "items": {"type": "string", "minLength": 3}},
        },
        "run_code": {"code": {"type": "string", "description": "Python"}},
    }.items()
]
CODE = 'if a < b and "x" not in c:\n    print("<b>it\'s</b>", {"k": [1, 2]})\n\n# </p> `done` \\n\n'
NESTED = {
    "name": "Zoë, 7",
    "guests": 4,
    "at": {"lat": -1.5, "notes": ["a", True, {"b": 2}]},
    "outside": False,
    "wishes": ["quiet", "007"],
}
CALLS = {
    "simple": [("get_weather", {"city": "Köln"})],
    "nested": [("book_table", NESTED)],
    "code": [("run_code", {"code": CODE})],
    "two": [("get_weather", {"city": "Ulm", "days": 2}), ("get_weather", {"city": "12", "days": 3})],
}
QUESTION = [{"role": "user", "content": "And now?"}]


def message(calls, as_text, content, named_ids):
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {
                "id": f"functions.{name}:{i}" if named_ids else f"callid{i:03}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments) if as_text else arguments},
            }
            for i, (name, arguments) in enumerate(calls)
        ],
    }


def written(template, calls, as_text=False):
    """The prompt, and the text that a model writes for the calls; None: the template refuses them."""

    def render(messages, **more):
        text = evaluate(chat_of(template), [{"tools": TOOLS, "messages": messages, **more}])[0]
        return "" if text.startswith("error") else text

    prompt, plain = (
        render(QUESTION, add_generation_prompt=True),
        render([*QUESTION, {"role": "assistant", "content": "Answer!"}]),
    )
    end = plain.rpartition("Answer!")[2].strip()
    for named_ids in (False, True):
        text = render([*QUESTION, message(calls, as_text, "", named_ids)])
        if text and calls[-1][0] in text.rpartition(QUESTION[0]["content"])[2]:
            same = len(os.path.commonprefix([text, prompt]))
            if same < len(prompt) and "<" in prompt[:same] and ">" not in text[: same + 1].rpartition("<")[2]:
                same = text.rindex("<", 0, same + 1)
            text = text[same:].rstrip()
            text = text[: text.rindex(end)] if end and end in text else text
            thinks = re.search(r"<[^<>]*think[^<>]*>\s*$", prompt) and re.match(r"</[^<>]*think", text)
            return prompt if thinks else prompt[:same], text
    return None


def learn_and_read(template, asked):
    """What is learnt of the template, and what is read of each (prompt, text, tools)."""
    program = built(BUILD / "tests/speech/calls")
    lines = [json.dumps({"chat": chat_of(template)})]
    lines += [json.dumps({"prompt": prompt, "text": text, "tools": tools}) for prompt, text, tools in asked]
    done = subprocess.run(
        [program, template], input="\n".join([*lines, ""]).encode(), capture_output=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def wrong(read, calls):
    """What is wrong with what was read, or None."""
    found = []
    for name, arguments, whole in read["calls"]:
        try:
            found.append((name, json.loads(arguments) if whole else arguments))
        except ValueError:
            found.append((name, "no JSON: " + arguments))
    if found != calls:
        return f"found {found}"
    if read["cut"] >= 0:
        return f"another cut at {read['cut']}"
    # A turn's end, as the template writes it, is a token that ends the text.
    return None if re.fullmatch(r"(\s*<[^<>/]+>)*\s*", read["content"]) else f"text: {read['content']!r}"
