// Tests: the names behind `is`, which select(), selectattr() and their opposites take too.

#include "chat/builtins.h"

enum test_kind {
    DEFINED,
    UNDEFINED,
    IS_NONE,
    IS_TRUE,
    IS_FALSE,
    BOOLEAN,
    INTEGER,
    FLOAT,
    NUMBER,
    STRING,
    MAPPING,
    SEQUENCE,
    ITERABLE,
    CALLABLE,
    ODD,
    EVEN,
    DIVISIBLE,
    COMPARISON, // and what follows: the operators, by their index
};

static const struct {
    const char *name;
    int which;
} tests[] = {
    {"defined", DEFINED},
    {"undefined", UNDEFINED},
    {"none", IS_NONE},
    {"true", IS_TRUE},
    {"false", IS_FALSE},
    {"boolean", BOOLEAN},
    {"integer", INTEGER},
    {"float", FLOAT},
    {"number", NUMBER},
    {"string", STRING},
    {"mapping", MAPPING},
    {"sequence", SEQUENCE},
    {"iterable", ITERABLE},
    {"callable", CALLABLE},
    {"odd", ODD},
    {"even", EVEN},
    {"divisibleby", DIVISIBLE},
    {"eq", COMPARISON},
    {"equalto", COMPARISON},
    {"==", COMPARISON},
    {"ne", COMPARISON + 1},
    {"!=", COMPARISON + 1},
    {"lt", COMPARISON + 2},
    {"lessthan", COMPARISON + 2},
    {"<", COMPARISON + 2},
    {"le", COMPARISON + 3},
    {"<=", COMPARISON + 3},
    {"gt", COMPARISON + 4},
    {"greaterthan", COMPARISON + 4},
    {">", COMPARISON + 4},
    {"ge", COMPARISON + 5},
    {">=", COMPARISON + 5},
    {"in", COMPARISON + 6},
};

int test_find(struct value name)
{
    for (int i = 0; i < (int)(sizeof tests / sizeof *tests); i++)
        if (is_text(name, tests[i].name))
            return i;
    return -1;
}

static bool divides(struct run *run, struct value value, struct value by)
{
    if (!is_number(value) || !is_number(by) || value.kind == V_FLOAT || by.kind == V_FLOAT || as_integer(by) == 0)
        return run_fail(run, "a test of divisibility needs integers, found %s and %s", type_name(value), type_name(by));
    return as_integer(by) == -1 || as_integer(value) % as_integer(by) == 0;
}

static bool is_sequence(struct value value)
{
    return value.kind == V_UNDEFINED || value.kind == V_STRING || value.kind == V_DICT ||
           (value.kind == V_LIST && value.list->flavour <= RANGE);
}

bool test_apply(struct run *run, int which, struct value value, const struct arguments *arguments)
{
    const struct value other = argument(arguments, 0, NULL, undefined(NULL));
    const enum value_kind kind = value.kind;
    switch (tests[which].which) {
    case DEFINED:
        return kind != V_UNDEFINED;
    case UNDEFINED:
        return kind == V_UNDEFINED;
    case IS_NONE:
        return kind == V_NONE;
    case IS_TRUE:
    case IS_FALSE:
        return kind == V_BOOL && value.boolean == (tests[which].which == IS_TRUE);
    case BOOLEAN:
        return kind == V_BOOL;
    case INTEGER:
        return kind == V_INT;
    case FLOAT:
        return kind == V_FLOAT;
    case NUMBER:
        return is_number(value);
    case STRING:
        return kind == V_STRING;
    case MAPPING:
        return kind == V_DICT;
    case SEQUENCE:
        return is_sequence(value);
    case ITERABLE:
        return is_sequence(value) || kind == V_LIST || kind == V_LOOP;
    case CALLABLE:
        return kind == V_MACRO || kind == V_FUNCTION || kind == V_METHOD || kind == V_UNDEFINED;
    case ODD:
    case EVEN:
        return divides(run, value, integer(2)) == (tests[which].which == EVEN);
    case DIVISIBLE:
        return divides(run, value, other);
    default:
        return operator_apply(run, tests[which].which - COMPARISON, value, other);
    }
}
