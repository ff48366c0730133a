"""What the ollama package does with the server at the address in argv[1]. Fails where it does not work."""

import json
import sys

import ollama

client = ollama.Client(host=sys.argv[1])
(model,) = (each.model for each in client.list().models)
assert "tools" in client.show(model).capabilities
hello = [{"role": "user", "content": "Hello"}]
options = {"seed": 5, "num_predict": 12}

answer = client.chat(model, hello, options=options)
parts = list(client.chat(model, hello, options=options, stream=True))
assert "".join(part.message.content for part in parts) == answer.message.content and parts[-1].done_reason == "length"
assert client.generate(model, "Hello", options=options).response == answer.message.content
assert "".join(part.response for part in client.generate(model, "a", options=options, stream=True))
schema = {"type": "object", "properties": {"kind": {"enum": ["fox", "wolf"]}}, "required": ["kind"]}
document = client.chat(model, hello, format=schema, options={"seed": 5}).message.content
assert json.loads(document)["kind"] in ("fox", "wolf")


def look(city: str) -> str:
    """Looks at a city.

    Args:
      city: which
    """
    return city


assert client.chat(model, hello, tools=[look], options=options, think=True).message.role == "assistant"
try:
    client.chat(model, hello, options={"temperature": -1})
except ollama.ResponseError as raised:
    assert raised.status_code == 400 and "temperature" in raised.error
else:
    raise AssertionError("no error")
print("done")
