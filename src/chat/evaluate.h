// Evaluation of expressions and statements. Every function returns at once after an error.
#pragma once
#include "chat/builtins.h"
#include "chat/strings.h"
#include "chat/tree.h"

struct scope {
    struct scope *outer; // NULL: the outermost
    struct dict *names;
    bool kept; // a macro has it, or a scope inside of it
};

struct macro {
    const struct node *node;
    struct scope *scope; // where it was defined
    struct value (*call)(struct run *run, const struct macro *macro, const struct arguments *arguments);
};

// How rendering goes on after a statement.
enum flow { NEXT, BREAK, CONTINUE };

struct value evaluate(struct run *run, struct scope *scope, const struct node *node);
enum flow execute(struct run *run, struct scope *scope, const struct group *body, struct writer *out);

// Evaluates a filter node. `input` is its operand where the node has none of its own.
struct value filter_node(struct run *run, struct scope *scope, const struct node *node, struct value input);
// A new scope inside of `outer`. NULL, with the run failed, where there is no memory.
struct scope *scope_in(struct run *run, struct scope *outer);
