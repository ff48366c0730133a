"""Objects of schemas: their properties come in any order, each once, and none is begun that may not come."""

from __future__ import annotations

import itertools
import json
import random

import jsonschema


def test_objects_of_many_properties(match):
    """Any that can be left out may come next: there are as many ways to go on, each by one stack."""
    named = {f"p{i}": {"type": "integer"} for i in range(15000)}
    texts = ['{"p3":1, "p14999":2}', '{"p3":1,\n "p3":2}', '{"p0":1,"p1":2,"p2":3,"p7777":4}', "{}", "{ ,", '{"p1":1 ,']
    found = match("schema", {"type": "object", "properties": named, "additionalProperties": False}, texts)
    assert found == ["yes", "no", "yes", "yes", "no", "no"]


def test_properties_in_any_order(match):
    """Each named one at most once, each that is required, others between them; as the standard takes the same documents."""
    choose = random.Random(2)
    for _ in range(30):
        keys = choose.sample(["a", "ab", "abc", "b", 'q"', "é", "x1"], 4)
        schema = {"type": "object", "properties": {key: {"const": i} for i, key in enumerate(keys)}}
        schema["required"] = choose.sample(keys, choose.randrange(3))
        schema["additionalProperties"] = choose.choice([False, {"const": 9}, True])
        if choose.random() < 0.5:
            schema["maxProperties"] = choose.randrange(2, 5)
        if choose.random() < 0.5 and schema["additionalProperties"] is False:
            schema["minProperties"] = choose.randrange(0, 3)
        texts, valid = [], []
        for _ in range(40):
            came = [choose.choice([*keys, *keys, "y", "abx"]) for _ in range(choose.randrange(6))]
            document = {key: keys.index(key) if key in keys else 9 for key in came}
            texts.append("{" + ",".join(json.dumps(key) + f":{document[key]}" for key in came) + "}")
            once = all(came.count(key) == 1 for key in came)
            valid.append(once and jsonschema.Draft202012Validator(schema).is_valid(document))
        texts = [text.replace("\\u00e9", "é") for text in texts]
        for text, answer, may in zip(texts, match("schema", schema, texts), valid):
            again = [pair.split(":")[0] for pair in text[1:-1].split(",")]
            if len(set(again)) == len(again) or all(
                again.count(json.dumps(key, ensure_ascii=False)) < 2 for key in keys
            ):
                assert may == (answer == "yes") or len(set(again)) < len(again), (schema, text, answer)
            else:
                assert answer == "no", (schema, text, answer)


def test_no_key_is_begun_that_may_not_come(match):
    """Whatever the order in which keys are declared and come: a key's beginning goes on to one that is left, or is refused."""
    keys = ["ab", "ac", "b"]
    for declared in itertools.permutations(keys):
        schema = {
            "properties": {key: {"const": 1} for key in declared},
            "required": keys[:2],
            "additionalProperties": False,
        }
        texts, expected = [], []
        for n in range(4):
            for came in itertools.permutations(keys, n):
                begun = "{" + "".join(f'"{key}":1,' for key in came)
                left = [key for key in keys if key not in came]
                for beginning in ("", '"', '"a', '"ab', '"ac', '"b'):
                    texts.append(begun + beginning)
                    expected.append("more" if any(f'"{key}'.startswith(beginning) for key in left) else "no")
        assert match("schema", schema, texts) == expected, declared


def test_many_orders_are_not_kept_for_ever(match):
    """A list of objects whose keys come in thousands of orders: what was seen is forgotten, the open objects are not."""
    choose, keys = random.Random(3), [f"k{i}" for i in range(12)]
    schema = {"properties": {key: {"type": "integer"} for key in keys}, "required": keys, "additionalProperties": False}
    document = [{key: i for i, key in enumerate(choose.sample(keys, 12))} for _ in range(2000)]
    text = json.dumps({"k0": document, "k1": []})
    outer = {"properties": {"k1": {"type": "array"}, "k0": {"type": "array", "items": schema}}, "required": ["k1"]}
    end = ', "k1": []}'
    found = match("schema", outer, [text, text[: -len(end)] + "}", text.replace(end, ', "k0": []}')])
    assert found == ["yes", "no", "no"]


def test_what_only_endless_documents_fit_is_not_begun(match):
    endless = {"type": "object", "properties": {"next": {"$ref": "#/$defs/endless"}}, "required": ["next"]}
    schema = {"$defs": {"endless": endless}, "properties": {"a": {"$ref": "#/$defs/endless"}, "b": {}}}
    assert match("schema", schema, ['{"a"', '{"b":1}']) == ["no", "yes"]
    assert "no text fits it" in match("schema", {"$defs": schema["$defs"], "$ref": "#/$defs/endless"})


def test_objects_never_run_into_a_dead_end(match):
    """Where properties are counted, one is left out only if enough others may still come."""
    named = {name: {"const": i} for i, name in enumerate("abcd")}
    schema = {"type": "object", "properties": named, "additionalProperties": False}
    begun = ['{"' + name for name in "abcd"]
    found = match("schema", {**schema, "maxProperties": 1, "required": ["d"]}, begun)
    assert [answer != "no" for answer in found] == [False, False, False, True]
    texts = ['{"a":0,"b', '{"a":0,"c', '{"a":0,"d', '{"d":3,"b', '{"d":3,"b":1,', '{"d":3,"b":1}']
    found = match("schema", {**schema, "maxProperties": 2, "required": ["d"]}, texts)
    assert [answer != "no" for answer in found] == [False, False, True, True, False, True]
    assert match("schema", schema, ['{"d":3,"b":1,"a":0,"c":2', '{"d":3,"b":1,"a":0,"c":2,']) == ["more", "no"]
    assert (
        match("schema", {**schema, "additionalProperties": {"const": 9}, "maxProperties": 1}, ['{"x":9,', '{"a":0,'])
        == ["no"] * 2
    )
    found = match("schema", {**schema, "minProperties": 3}, ['{"d":3,"b":1', '{"d":3,"b":1}', '{"d":3,"b":1,"a":0}'])
    assert found == ["more", "no", "yes"]
