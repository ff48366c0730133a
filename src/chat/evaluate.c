// Expressions.

#include "chat/evaluate.h"

#include "chat/operators.h"
#include "chat/print.h"

static struct value first(struct run *run, struct scope *scope, const struct group *group)
{
    return group->n ? evaluate(run, scope, group->nodes[0]) : none();
}

static struct value look_up(struct run *run, struct scope *scope, struct value name)
{
    for (struct scope *s = scope; s; s = s->outer) {
        const struct value *found = dict_find(run, s->names, name);
        if (found)
            return *found;
    }
    const int function = function_find(name);
    return function >= 0 ? (struct value){.kind = V_FUNCTION, .index = function} : undefined(name.text);
}

static struct value evaluate_list(struct run *run, struct scope *scope, const struct node *node)
{
    const struct group *items = &node->groups[0];
    const struct value list = new_list(run, node->kind == N_TUPLE ? TUPLE : LIST, (size_t)items->n);
    for (int i = 0; i < items->n && !failed(run); i++)
        list_add(run, list.list, evaluate(run, scope, items->nodes[i]));
    return list;
}

static struct value evaluate_dict(struct run *run, struct scope *scope, const struct node *node)
{
    const struct value dict = new_dict(run, V_DICT);
    for (int i = 0; i < node->groups[0].n && !failed(run); i++) {
        const struct value key = evaluate(run, scope, node->groups[0].nodes[i]);
        dict_set(run, dict.dict, key, evaluate(run, scope, node->groups[1].nodes[i]));
    }
    return dict;
}

static struct value evaluate_slice(struct run *run, struct scope *scope, struct value value, const struct node *slice)
{
    const struct value start = first(run, scope, &slice->groups[0]);
    const struct value stop = first(run, scope, &slice->groups[1]);
    const struct value step = first(run, scope, &slice->groups[2]);
    if (failed(run))
        return undefined(NULL);
    if (value.kind == V_UNDEFINED) {
        run_fail(run, "'%s' is undefined", value.text ? value.text : "a value");
        return value;
    }
    if (value.kind == V_STRING)
        return slice_text(run, value, start, stop, step);
    if (value.kind == V_LIST && value.list->flavour <= RANGE)
        return slice_list(run, value.list, start, stop, step);
    return undefined(NULL);
}

static struct value evaluate_item(struct run *run, struct scope *scope, const struct node *node)
{
    const struct value value = first(run, scope, &node->groups[0]);
    const struct node *key = node->groups[1].nodes[0];
    return key->kind == N_SLICE ? evaluate_slice(run, scope, value, key) : get_item(run, value, evaluate(run, scope, key));
}

static bool evaluate_compare(struct run *run, struct scope *scope, const struct node *node)
{
    struct value left = first(run, scope, &node->groups[0]);
    for (int i = 0; i < node->groups[1].n && !failed(run); i++) {
        const struct node *operand = node->groups[1].nodes[i];
        const struct value right = first(run, scope, &operand->groups[0]);
        if (failed(run) || !operator_apply(run, operator_find(operand->value), left, right))
            return false;
        left = right;
    }
    return !failed(run);
}

static struct value evaluate_concat(struct run *run, struct scope *scope, const struct node *node)
{
    struct writer writer = {0};
    for (int i = 0; i < node->groups[0].n && !failed(run); i++)
        print(run, &writer, evaluate(run, scope, node->groups[0].nodes[i]));
    return written(&writer);
}

// ------------------------------------------------------------------------------------------ calls

// The values of arguments and keywords, in the arena.
static bool read_arguments(struct run *run, struct scope *scope, const struct group *by_place, const struct group *by_name,
                           struct arguments *arguments)
{
    const int n = by_place->n, n_named = by_name ? by_name->n : 0;
    struct value *values = run_take(run, (size_t)(n + 2 * n_named + 1) * sizeof *values);
    if (values == NULL)
        return false;
    for (int i = 0; i < n; i++)
        values[i] = evaluate(run, scope, by_place->nodes[i]);
    for (int i = 0; i < n_named; i++) {
        values[n + i] = evaluate(run, scope, by_name->nodes[i]->groups[0].nodes[0]);
        values[n + n_named + i] = by_name->nodes[i]->value;
    }
    *arguments = (struct arguments){.n = n, .n_named = n_named, .values = values, .names = values + n + n_named};
    return !failed(run);
}

static struct value evaluate_call(struct run *run, struct scope *scope, const struct node *node)
{
    const struct value callee = first(run, scope, &node->groups[0]);
    struct arguments arguments;
    if (!read_arguments(run, scope, &node->groups[1], &node->groups[2], &arguments))
        return undefined(NULL);
    run->line = node->line;
    switch (callee.kind) {
    case V_MACRO:
        return callee.macro->call(run, callee.macro, &arguments);
    case V_FUNCTION:
        return function_call(run, callee.index, &arguments);
    case V_METHOD:
        return method_call(run, callee.method, &arguments);
    case V_UNDEFINED:
        run_fail(run, "'%s' is undefined", callee.text ? callee.text : "what is called");
        return callee;
    default:
        run_fail(run, "'%s' object is not callable", type_name(callee));
        return callee;
    }
}

struct value filter_node(struct run *run, struct scope *scope, const struct node *node, struct value input)
{
    struct arguments arguments;
    const struct node *before = node->groups[0].n ? node->groups[0].nodes[0] : NULL;
    if (before && before->kind == N_FILTER) // the first of a chain may be the one that has nothing of its own
        input = filter_node(run, scope, before, input);
    else if (before)
        input = evaluate(run, scope, before);
    if (!read_arguments(run, scope, &node->groups[1], &node->groups[2], &arguments))
        return undefined(NULL);
    run->line = node->line;
    return filter_apply(run, node->which, input, &arguments);
}

static struct value evaluate_test(struct run *run, struct scope *scope, const struct node *node)
{
    struct arguments arguments;
    const struct value value = first(run, scope, &node->groups[0]);
    if (!read_arguments(run, scope, &node->groups[1], NULL, &arguments))
        return undefined(NULL);
    return boolean(test_apply(run, node->which, value, &arguments));
}

// ------------------------------------------------------------------------------------------ all of them

static struct value evaluate_kind(struct run *run, struct scope *scope, const struct node *node)
{
    const struct group *g = node->groups;
    struct value left;
    switch (node->kind) {
    case N_CONST:
    case N_DATA:
        return node->value;
    case N_NAME:
        return look_up(run, scope, node->value);
    case N_TUPLE:
    case N_LIST:
        return evaluate_list(run, scope, node);
    case N_DICT:
        return evaluate_dict(run, scope, node);
    case N_GETITEM:
        return evaluate_item(run, scope, node);
    case N_GETATTR:
        return get_attribute(run, first(run, scope, &g[0]), node->value);
    case N_CALL:
        return evaluate_call(run, scope, node);
    case N_FILTER:
        return filter_node(run, scope, node, none());
    case N_TEST:
        return evaluate_test(run, scope, node);
    case N_COND:
        if (truth(first(run, scope, &g[0])))
            return first(run, scope, &g[1]);
        return g[2].n ? first(run, scope, &g[2]) : undefined("the inline if-expression without else");
    case N_COMPARE:
        return boolean(evaluate_compare(run, scope, node));
    case N_CONCAT:
        return evaluate_concat(run, scope, node);
    case N_AND:
    case N_OR:
        left = first(run, scope, &g[0]);
        return truth(left) == (node->kind == N_OR) ? left : first(run, scope, &g[1]);
    case N_NOT:
        return boolean(!truth(first(run, scope, &g[0])));
    case N_NEG:
    case N_POS:
        return signed_number(run, first(run, scope, &g[0]), node->kind == N_NEG);
    default:
        left = first(run, scope, &g[0]);
        return arithmetic(run, node->kind, left, first(run, scope, &g[1]));
    }
}

struct value evaluate(struct run *run, struct scope *scope, const struct node *node)
{
    if (!run_step(run, 1))
        return undefined(NULL);
    if (run->depth >= RUN_MAX_DEPTH)
        return no_value(run, "macros call each other too deeply");
    run->depth++;
    run->line = node->line;
    const struct value value = evaluate_kind(run, scope, node);
    run->depth--;
    return failed(run) ? undefined(NULL) : value;
}
