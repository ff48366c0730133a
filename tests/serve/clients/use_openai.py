"""What the openai package does with the server at the address in argv[1]. Fails where it does not work."""

import json
import sys
from pathlib import Path
from typing import Literal

import openai
from pydantic import BaseModel, Field

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model
hello = [{"role": "user", "content": "Hello"}]

# Texts.
whole = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, seed=3, logprobs=2)
assert whole.choices[0].text and len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens
scored = client.completions.create(model=model, prompt="Once upon a time", max_tokens=0, echo=True, logprobs=1)
assert scored.choices[0].text == "Once upon a time" and scored.choices[0].logprobs.token_logprobs[0] is None

# Conversations, whole and streamed.
fields = {
    "model": model,
    "messages": hello,
    "max_completion_tokens": 12,
    "seed": 5,
    "extra_body": {"cache_prompt": False},
}
answer = client.chat.completions.create(**fields, logprobs=True, top_logprobs=3)
assert answer.choices[0].message.role == "assistant" and answer.usage.prompt_tokens_details.cached_tokens == 0
assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 3
chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == answer.choices[0].message.content
assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens


# Documents of a type.
class Beast(BaseModel):
    kind: Literal["fox", "wolf"]
    age: int = Field(ge=1, le=20)
    friends: list[Literal["hare", "bear"]]


parsed = client.chat.completions.parse(
    model=model, messages=hello, response_format=Beast, max_tokens=900, temperature=0.5, seed=5
)
assert isinstance(parsed.choices[0].message.parsed, Beast)


# Calls of tools.
class Weather(BaseModel):
    """The weather in a city"""

    city: Literal["Paris", "Rome"]


tools = [openai.pydantic_function_tool(Weather)]
called = client.chat.completions.parse(
    model=model, messages=hello, tools=tools, tool_choice="required", max_tokens=900, seed=5
)
(call, *_) = called.choices[0].message.tool_calls
assert isinstance(call.function.parsed_arguments, Weather)
with client.chat.completions.stream(
    model=model, messages=hello, tools=tools, tool_choice="required", max_tokens=900, seed=5
) as stream:
    final = stream.get_final_completion()
assert isinstance(final.choices[0].message.tool_calls[0].function.parsed_arguments, Weather)
reply = [*hello, {"role": "assistant", "tool_calls": [call.model_dump(exclude={"function": {"parsed_arguments"}})]}]
reply.append({"role": "tool", "tool_call_id": call.id, "content": "Sunny"})
assert client.chat.completions.create(model=model, messages=reply, tools=tools, max_tokens=5).choices

# Responses, whole, streamed, going on, and of a type.
said = client.responses.create(model=model, input="Hello", max_output_tokens=12, extra_body={"seed": 5})
assert said.output_text and said.status == "incomplete"
with client.responses.stream(model=model, input="Hello", max_output_tokens=12, extra_body={"seed": 5}) as stream:
    told = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
assert told == said.output_text
assert client.responses.create(model=model, input="And?", previous_response_id=said.id, max_output_tokens=2).usage
assert client.responses.retrieve(said.id).output_text == told
beast = client.responses.parse(
    model=model, input="Hello", text_format=Beast, extra_body={"seed": 5, "temperature": 0.5}
)
assert isinstance(beast.output_parsed, Beast)

# Each event is such as the package's types have it; with a request of an agent's, too.
agent = json.loads((Path(__file__).parent.parent / "requests/codex.json").read_text())
for request in ({"model": model, "input": "Hello", "stream": True}, agent, {**agent, "tool_choice": "required"}):
    for event in client.responses.create(**{**request, "max_output_tokens": 60}):
        type(event).model_validate(event.model_dump(warnings=False))

# A stream that is left early costs no more.
with client.chat.completions.create(model=model, messages=hello, stream=True) as stream:
    assert next(iter(stream)).choices
assert client.chat.completions.create(**fields).choices

# Errors are the package's own.
long = [{"role": "user", "content": "word " * 5000}]
for code, wrong in ((None, {"temperature": -1}), ("context_length_exceeded", {"messages": long})):
    try:
        client.chat.completions.create(**{"model": model, "messages": hello, **wrong})
    except openai.BadRequestError as raised:
        assert raised.code == code
    else:
        raise AssertionError("no error")
assert client.chat.completions.create(model=model, messages=hello, max_tokens=10**6, stop=["e"]).choices
print("done")
