"""What the langchain-openai package does with the server at the address in argv[1]. Fails where it does not work."""

import sys
from typing import Literal

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field

place = {"base_url": sys.argv[1] + "/v1", "api_key": "none", "model": "any", "max_retries": 0}
chat = ChatOpenAI(**place, max_tokens=12, seed=5, stream_usage=True)
messages = [SystemMessage("Be brief."), HumanMessage("Hello")]

answer = chat.invoke(messages)
assert isinstance(answer, AIMessage) and answer.content and answer.usage_metadata["output_tokens"] <= 12
chunks = list(chat.stream(messages))
whole = chunks[0]
for chunk in chunks[1:]:
    whole += chunk
assert whole.content and len(chunks) > 3 and whole.usage_metadata["output_tokens"] <= 12
assert len(chat.batch([messages, messages])) == 2
assert OpenAI(**place, max_tokens=8).invoke("Once upon a time")


class Beast(BaseModel):
    kind: Literal["fox", "wolf"]
    age: int = Field(ge=1, le=20)


larger = ChatOpenAI(**place, max_tokens=900, seed=5)
assert isinstance(larger.with_structured_output(Beast, method="json_schema").invoke(messages), Beast)
assert isinstance(larger.with_structured_output(Beast, method="function_calling").invoke(messages), Beast)


@tool
def weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather in a city"""
    return f"Sunny in {city}"


bound = larger.bind_tools([weather], tool_choice="required")
called = bound.invoke(messages)
(call, *_) = called.tool_calls
assert call["name"] == "weather" and call["args"]["city"] in ("Paris", "Rome")
result = weather.invoke(call)
assert isinstance(result, ToolMessage)
results = [ToolMessage("Sunny", tool_call_id=each["id"]) for each in called.tool_calls]
assert chat.bind_tools([weather]).invoke([*messages, called, *results]) is not None
streamed = None
for chunk in bound.stream(messages):
    streamed = chunk if streamed is None else streamed + chunk
assert streamed.tool_calls[0]["args"]["city"] in ("Paris", "Rome")
print("done")
