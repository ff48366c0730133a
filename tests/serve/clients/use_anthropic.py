"""What the anthropic package does with the server at the address in argv[1]. Fails where it does not work."""

import json
import sys
from pathlib import Path

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
fields = {"model": "any", "max_tokens": 12, "messages": [{"role": "user", "content": "Hello"}], "system": "Be brief."}
tool = {
    "name": "weather",
    "description": "The weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]},
}

answer = client.messages.create(**fields)
assert (
    answer.role == "assistant" and answer.stop_reason in ("max_tokens", "end_turn") and answer.usage.output_tokens <= 12
)
count = client.messages.count_tokens(**{key: fields[key] for key in ("model", "messages", "system")})
assert count.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens

with client.messages.stream(**fields) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert "".join(block.text for block in final.content) == text and final.usage.output_tokens <= 12

fields["max_tokens"] = 900
answer = client.messages.create(**fields, tools=[tool], tool_choice={"type": "any"})
(call, *_) = answer.content
assert answer.stop_reason == "tool_use" and call.type == "tool_use" and call.input["city"] in ("Paris", "Rome")
with client.messages.stream(**fields, tools=[tool], tool_choice={"type": "tool", "name": "weather"}) as stream:
    final = stream.get_final_message()
assert final.content[0].input["city"] in ("Paris", "Rome")

result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Sunny"}]}
messages = [
    *fields["messages"],
    {"role": "assistant", "content": answer.content},
    {"role": "user", "content": [result]},
]
assert client.messages.create(**{**fields, "messages": messages, "max_tokens": 5}, tools=[tool]).content is not None

# Each event is such as the package's types have it; with a request of an agent's, too.
agent = json.loads((Path(__file__).parent.parent / "requests/claude_code.json").read_text())
for request in ({}, agent, {**agent, "tool_choice": {"type": "any"}}):
    asked = {**fields, "max_tokens": 60, "betas": ["interleaved-thinking-2025-05-14"], "stream": True}
    for event in client.beta.messages.create(**asked, extra_body={**request, "max_tokens": 60}):
        type(event).model_validate(event.model_dump(warnings=False))

# More than the context holds, as some clients always ask.
with client.messages.stream(**{**fields, "max_tokens": 32000}, stop_sequences=["e"]) as stream:
    final = stream.get_final_message()
assert final.stop_reason and final.usage.output_tokens < 2048
try:
    client.messages.create(**{**fields, "messages": [{"role": "user", "content": "word " * 5000}]})
except anthropic.BadRequestError as raised:
    assert raised.body["error"]["type"] == "invalid_request_error"
else:
    raise AssertionError("no error")
print("done")
