"""An agent that edits a file by tools, with the server at the address in argv[1], in a folder of its own. What it does is
told; fails where the file is not as it was asked for."""

import json
import sys
import tempfile
from pathlib import Path

import openai

TASK = "In greet.py replace the text Helo by the text Hello."


def tool(name, description, **members):
    properties = {key: {"type": "string", "description": text} for key, text in members.items()}
    schema = {"type": "object", "properties": properties, "required": list(members), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    tool("read_file", "Returns a file's text.", path="The file"),
    tool(
        "edit_file",
        "Replaces a text in a file by another.",
        path="The file",
        old="The text that is there",
        new="What comes in its place",
    ),
]


def run(folder, name, path, old="", new=""):
    file = Path(folder, Path(path).name)
    if not file.exists():
        return "error: no such file"
    text = file.read_text()
    if name == "read_file":
        return text
    if old not in text:
        return "error: the old text is not in the file"
    file.write_text(text.replace(old, new))
    return "done"


client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
messages = [
    {"role": "system", "content": "You edit files by the tools. Read a file before you edit it."},
    {"role": "user", "content": TASK},
]
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "greet.py")
    file.write_text('def greet(name):\n    print("Helo " + name)\n')
    for _ in range(4):
        fields = {"model": "any", "messages": messages, "tools": TOOLS, "max_tokens": 200, "temperature": 0}
        message = client.chat.completions.create(**fields).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            result = run(folder, call.function.name, **json.loads(call.function.arguments))
            print(f"{call.function.name} {call.function.arguments} -> {result!r}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not message.tool_calls or "Hello" in file.read_text():
            break
    assert file.read_text() == 'def greet(name):\n    print("Hello " + name)\n', file.read_text()
print("done")
