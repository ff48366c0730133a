// Statements: output, loops, conditions, assignments, macros. A loop's body, a macro, and a block that is assigned or filtered
// each have a scope, whose names end with it; a condition has none.

#include "chat/evaluate.h"
#include "chat/print.h"

// Scopes lie in the arena: a macro may outlive the loop whose scope it was defined in.
struct scope *scope_in(struct run *run, struct scope *outer)
{
    struct scope *scope = run_take(run, sizeof *scope);
    const struct value names = new_dict(run, V_DICT);
    if (failed(run))
        return NULL;
    *scope = (struct scope){.outer = outer, .names = names.dict};
    return scope;
}

// ------------------------------------------------------------------------------------------ assignment

static void assign_attribute(struct run *run, struct scope *scope, const struct node *target, struct value value)
{
    const struct value namespace = evaluate(run, scope, target->groups[0].nodes[0]);
    if (failed(run))
        return;
    if (namespace.kind != V_NAMESPACE) {
        run_fail(run, "cannot assign attribute on non-namespace object");
        return;
    }
    check_attribute(run, target->value);
    if (!failed(run))
        dict_set(run, namespace.dict, target->value, value);
}

// Assigns a value to a target. `into` gets the names; namespaces are looked up from `scope`.
static void assign(struct run *run, struct scope *scope, struct scope *into, const struct node *target, struct value value)
{
    if (failed(run))
        return;
    if (target->kind == N_NAME) {
        dict_set(run, into->names, target->value, value);
        return;
    }
    if (target->kind == N_NSREF) {
        assign_attribute(run, scope, target, value);
        return;
    }
    const struct list *items = iterate(run, value);
    if (items && items->n != (size_t)target->groups[0].n)
        run_fail(run, "cannot unpack %zu values into %d names", items->n, target->groups[0].n);
    for (int i = 0; i < target->groups[0].n && !failed(run); i++)
        assign(run, scope, into, target->groups[0].nodes[i], items->items[i]);
}

// ------------------------------------------------------------------------------------------ loops

// The items that a loop walks over: those for which its condition holds.
static const struct list *looped(struct run *run, struct scope *scope, const struct node *node)
{
    const struct list *all = iterate(run, evaluate(run, scope, node->groups[1].nodes[0]));
    if (all == NULL || node->groups[4].n == 0)
        return all;
    const struct value some = new_list(run, LIST, 8);
    for (size_t i = 0; i < all->n && !failed(run); i++) {
        struct scope *inner = scope_in(run, scope);
        if (inner)
            assign(run, scope, inner, node->groups[0].nodes[0], all->items[i]);
        if (!failed(run) && truth(evaluate(run, inner, node->groups[4].nodes[0])))
            list_add(run, some.list, all->items[i]);
    }
    return failed(run) ? NULL : some.list;
}

static void run_loop(struct run *run, struct scope *scope, const struct node *node, struct writer *out)
{
    const struct list *list = looped(run, scope, node);
    if (list == NULL)
        return;
    // A list that the body makes longer is walked to its new end, as in Python; one that gets shorter ends earlier.
    struct loop *loop = run_take(run, sizeof *loop);
    const size_t n = list->n;
    enum flow flow = NEXT;
    struct scope *inner = NULL;
    for (size_t i = 0; loop && i < list->n && flow != BREAK && !failed(run); i++) {
        *loop = (struct loop){.list = list, .index = i, .changed = i ? loop->changed : undefined(NULL)};
        if (inner && !inner->kept)
            *inner->names = (struct dict){.room = inner->names->room, .entries = inner->names->entries};
        else
            inner = scope_in(run, scope);
        if (failed(run))
            return;
        dict_set(run, inner->names, string_of("loop"), (struct value){.kind = V_LOOP, .loop = loop});
        assign(run, scope, inner, node->groups[0].nodes[0], list->items[i]);
        flow = execute(run, inner, &node->groups[2], out);
    }
    if (n > 0 || node->groups[3].n == 0)
        return;
    inner = scope_in(run, scope);
    if (inner)
        execute(run, inner, &node->groups[3], out);
}

// ------------------------------------------------------------------------------------------ blocks

static struct value capture(struct run *run, struct scope *scope, const struct group *body)
{
    struct writer writer = {0};
    struct scope *inner = scope_in(run, scope);
    if (!failed(run))
        execute(run, inner, body, &writer);
    return written(&writer);
}

static void run_with(struct run *run, struct scope *scope, const struct node *node, struct writer *out)
{
    struct scope *inner = scope_in(run, scope);
    for (int i = 0; i < node->groups[0].n && !failed(run); i++)
        assign(run, scope, inner, node->groups[0].nodes[i], evaluate(run, scope, node->groups[1].nodes[i]));
    if (!failed(run))
        execute(run, inner, &node->groups[2], out);
}

static enum flow run_if(struct run *run, struct scope *scope, const struct node *node, struct writer *out)
{
    if (truth(evaluate(run, scope, node->groups[0].nodes[0])))
        return execute(run, scope, &node->groups[1], out);
    for (int i = 0; i < node->groups[2].n && !failed(run); i++) {
        const struct node *elif = node->groups[2].nodes[i];
        if (truth(evaluate(run, scope, elif->groups[0].nodes[0])))
            return execute(run, scope, &elif->groups[1], out);
    }
    return failed(run) ? NEXT : execute(run, scope, &node->groups[3], out);
}

static struct value call_macro(struct run *run, const struct macro *macro, const struct arguments *arguments)
{
    const struct group *names = &macro->node->groups[0], *defaults = &macro->node->groups[1];
    struct writer writer = {0};
    struct scope *inner = scope_in(run, macro->scope);
    if (arguments->n > names->n)
        run_fail(run, "macro '%s' takes not more than %d argument(s)", macro->node->value.text, names->n);
    for (int k = 0; k < arguments->n_named && !failed(run); k++) {
        int i = 0;
        while (i < names->n && !equal(run, names->nodes[i]->value, arguments->names[k]))
            i++;
        if (i == names->n)
            run_fail(run, "macro '%s' takes no keyword argument '%s'", macro->node->value.text, arguments->names[k].text);
    }
    for (int i = 0; i < names->n && !failed(run); i++) {
        const struct value name = names->nodes[i]->value;
        const int with_default = i - (names->n - defaults->n);
        struct value value = argument(arguments, i, name.text, (struct value){.kind = V_LOOP}); // which no argument is
        if (value.kind == V_LOOP && value.loop == NULL)
            value = with_default < 0 ? undefined(name.text) : evaluate(run, inner, defaults->nodes[with_default]);
        if (!failed(run))
            dict_set(run, inner->names, name, value);
    }
    if (!failed(run))
        execute(run, inner, &macro->node->groups[2], &writer);
    return written(&writer);
}

static void define_macro(struct run *run, struct scope *scope, const struct node *node)
{
    struct macro *macro = run_take(run, sizeof *macro);
    if (macro == NULL)
        return;
    *macro = (struct macro){.node = node, .scope = scope, .call = call_macro};
    for (struct scope *s = scope; s; s = s->outer)
        s->kept = true;
    dict_set(run, scope->names, node->value, (struct value){.kind = V_MACRO, .macro = macro});
}

// ------------------------------------------------------------------------------------------ all of them

static void run_output(struct run *run, struct scope *scope, const struct node *node, struct writer *out)
{
    for (int i = 0; i < node->groups[0].n && !failed(run); i++) {
        const struct value value = evaluate(run, scope, node->groups[0].nodes[i]);
        if (!failed(run))
            print(run, out, value);
    }
}

static enum flow execute_node(struct run *run, struct scope *scope, const struct node *node, struct writer *out)
{
    const struct group *g = node->groups;
    struct scope *inner;
    struct value value;
    switch (node->kind) {
    case N_OUTPUT:
        run_output(run, scope, node, out);
        break;
    case N_FOR:
        run_loop(run, scope, node, out);
        break;
    case N_IF:
        return run_if(run, scope, node, out);
    case N_ASSIGN:
        assign(run, scope, scope, g[0].nodes[0], evaluate(run, scope, g[1].nodes[0]));
        break;
    case N_ASSIGN_BLOCK:
        value = capture(run, scope, &g[2]);
        assign(run, scope, scope, g[0].nodes[0], g[1].n ? filter_node(run, scope, g[1].nodes[0], value) : value);
        break;
    case N_MACRO:
        define_macro(run, scope, node);
        break;
    case N_FILTER_BLOCK:
        value = capture(run, scope, &g[1]);
        print(run, out, filter_node(run, scope, g[0].nodes[0], value));
        break;
    case N_SCOPE:
        inner = scope_in(run, scope);
        return inner ? execute(run, inner, &g[0], out) : NEXT;
    case N_WITH:
        run_with(run, scope, node, out);
        break;
    case N_BREAK:
        return BREAK;
    default:
        return CONTINUE;
    }
    return NEXT;
}

enum flow execute(struct run *run, struct scope *scope, const struct group *body, struct writer *out)
{
    enum flow flow = NEXT;
    for (int i = 0; i < body->n && flow == NEXT && run_step(run, 1); i++) {
        if (run->depth >= RUN_MAX_DEPTH) {
            run_fail(run, "macros call each other too deeply");
            break;
        }
        run->depth++;
        run->line = body->nodes[i]->line;
        flow = execute_node(run, scope, body->nodes[i], out);
        run->depth--;
    }
    return flow;
}
