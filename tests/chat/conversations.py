"""What chat templates are rendered with: variables as a caller gives them."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <now> at a place, in °C & more.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Town, country"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 14},
                "limits": {"type": "array", "items": {"type": "number"}},
                "where": {
                    "type": "object",
                    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                    "required": ["lat", "lon"],
                },
            },
            "required": ["place"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "What time it is.",
        "parameters": {"type": "object", "properties": {}},
    },
}
EXACT = {
    "type": "function",
    "function": {
        "name": "exact",
        "description": "Numbers\nand 'quotes'",
        "parameters": {
            "type": "object",
            "properties": {
                "x": {"type": "number", "default": 1.0, "description": "one"},
                "flag": {"type": "boolean", "default": False, "description": "a flag"},
                "many": {"type": "array", "items": {"type": "string"}, "description": "words"},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "of two"},
            },
            "required": ["x"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


def call(name, arguments, identity="abcdef123"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def tool(text, **more):
    return {"role": "tool", "content": text, "tool_call_id": "abcdef123", "name": "get_weather", **more}


ASKED = [
    user("What is the weather in Zürich?"),
    assistant("", tool_calls=[call("get_weather", {"place": "Zürich", "days": 3, "limits": [1, 2.5]})]),
]
MESSAGES = {
    "one": [user("Hello")],
    "system": [system("Be brief."), user("Hello")],
    "turns": [user("Hi"), assistant("Hello!"), user("And now?")],
    "system and turns": [
        system(" Speak plainly. \n"),
        user("Hi\n"),
        assistant(" Hello! "),
        user("  And now?  "),
        assistant("Yes."),
        user("Sure?"),
    ],
    "answered": [user("Hi"), assistant("Hello!")],
    "empty": [system(""), user(""), assistant(""), user("")],
    "Unicode": [
        system("Grüße 你好"),
        user("naïve 🦙 <b>&amp;</b> \"'\\ \t end\u00a0"),
        assistant("🏳️‍🌈 İstanbul"),
        user("مرحبا\u200d"),
    ],
    "reasoning": [user("2+2?"), assistant("<think>\nadd\n</think>\n\n4"), user("3+3?")],
    "reasoning apart": [
        user("2+2?"),
        assistant("4", reasoning_content="add them"),
        user("3+3?"),
        assistant("6", reasoning="again"),
    ],
    "called": ASKED,
    "called and told": [*ASKED, tool('{"temperature": 21.5, "sky": "clear ☀"}')],
    "called and answered": [*ASKED, tool("21.5"), assistant("It is 21.5 °C."), user("Thanks")],
    "called twice": [
        user("Both, please"),
        assistant(
            None,
            tool_calls=[
                call("get_weather", {"place": "Bern", "where": {"lat": 46.9, "lon": 7.4}}),
                call("clock", {}, "abcdef124"),
            ],
        ),
        tool("cold"),
        tool("noon", tool_call_id="abcdef124", name="clock"),
        assistant("Cold, and noon."),
        user("ok"),
    ],
    "arguments as text": [
        user("w?"),
        assistant("", tool_calls=[call("get_weather", '{"place": "Bern", "days": 1}')]),
        tool("rain"),
    ],
    "call with words": [
        system("Use tools."),
        user("w?"),
        assistant("I look.", tool_calls=[call("get_weather", {"place": "Bern"})]),
        tool("rain"),
        assistant("Rain."),
    ],
    "parts": [
        {"role": "user", "content": [{"type": "text", "text": "Look at"}, {"type": "text", "text": " this"}]},
        assistant("I do"),
    ],
    "developer": [{"role": "developer", "content": "Be kind."}, user("Hello")],
    "two users": [user("one"), user("two")],
    "assistant first": [assistant("I begin."), user("Go on")],
    "unknown role": [{"role": "critic", "content": "no"}, user("x")],
}
EXTRAS = (
    {},
    {"add_generation_prompt": True},
    {"tools": [WEATHER], "add_generation_prompt": True},
    {"tools": [WEATHER, CLOCK, EXACT], "add_generation_prompt": True},
    {"tools": []},
    {"enable_thinking": False, "add_generation_prompt": True},
    {"enable_thinking": True, "add_generation_prompt": True, "reasoning_effort": "high", "thinking": True},
    {"date_string": "27 Nov 2026", "documents": [{"title": "A", "text": "Some text."}], "tools": [CLOCK]},
)


def conversations():
    """(what it is, variables) of every messages with every extras."""
    for name, messages in MESSAGES.items():
        for i, extras in enumerate(EXTRAS):
            yield f"{name}, {i}", {"messages": messages, **extras}
