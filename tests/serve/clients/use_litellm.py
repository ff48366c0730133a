"""What the litellm package does with the server at the address in argv[1], in both APIs. Fails where it does not work."""

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # loopback only: no list of prices is fetched

import litellm

litellm.suppress_debug_info = True
hello = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
tool = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]},
    },
}

for place in (
    {"model": "openai/any", "api_base": sys.argv[1] + "/v1", "api_key": "none"},
    {"model": "anthropic/any", "api_base": sys.argv[1], "api_key": "none"},
):
    fields = {**place, "messages": hello, "num_retries": 0}
    answer = litellm.completion(**fields, max_tokens=12)
    assert answer.choices[0].message.content and answer.usage.completion_tokens <= 12
    chunks = list(litellm.completion(**fields, max_tokens=12, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) and len(chunks) > 3
    called = litellm.completion(**fields, max_tokens=900, tools=[tool], tool_choice="required")
    (call, *_) = called.choices[0].message.tool_calls
    assert call.function.name == "weather" and '"city"' in call.function.arguments
    reply = [*hello, called.choices[0].message.model_dump()]
    reply += [
        {"role": "tool", "tool_call_id": each.id, "content": "Sunny"} for each in called.choices[0].message.tool_calls
    ]
    assert litellm.completion(**{**fields, "messages": reply}, tools=[tool], max_tokens=5).choices
    try:
        litellm.completion(**{**fields, "messages": [{"role": "user", "content": "word " * 5000}]}, max_tokens=5)
    except litellm.BadRequestError:
        pass
    else:
        raise AssertionError("no error")

assert litellm.text_completion(
    model="text-completion-openai/any", prompt="Once", max_tokens=5, api_base=sys.argv[1] + "/v1", api_key="none"
).choices
print("done")
