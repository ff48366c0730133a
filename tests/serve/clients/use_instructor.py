"""What the instructor package does with the server at the address in argv[1]. Fails where it does not work."""

import sys
from typing import Literal

import instructor
import openai
from pydantic import BaseModel, Field


class Beast(BaseModel):
    """A beast of a tale"""

    kind: Literal["fox", "wolf"]
    age: int = Field(ge=1, le=20)
    friends: list[Literal["hare", "bear"]] = Field(max_length=3)


plain = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
fields = {"model": "any", "messages": [{"role": "user", "content": "Of a beast"}], "max_tokens": 900, "seed": 5}
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT):
    client = instructor.from_openai(plain, mode=mode)
    beast = client.chat.completions.create(**fields, response_model=Beast, max_retries=0)
    assert isinstance(beast, Beast), mode
client = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
parts = list(client.chat.completions.create_partial(**fields, response_model=Beast))
assert len(parts) > 1 and parts[-1].kind in ("fox", "wolf")
print("done")
