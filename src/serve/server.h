// What the parts of the server share.
#pragma once
#include "serve/calls.h"
#include "serve/engine.h"
#include "serve/serve.h"

struct connections;
struct store;

struct server {
    const yalm_model *model;
    const struct serve_options *options;
    struct engine *engine;
    struct token_tree *tree; // of the vocabulary, for grammars
    struct calls calls;      // how the model writes them
    struct keys *keys;       // NULL: none is needed
    size_t longest_piece;    // bytes that a token of the vocabulary spells at most
    long created;            // seconds since 1970
    struct connections *connections;
    struct request_reader *reading;
    struct request_reader *embedding; // handles requests for vectors
    yalm_session *vectors;            // in that thread; NULL: the model makes none
    atomic_bool ending;
    struct store *store; // responses that clients may refer to
    atomic_int n_open;   // requests whose answer is not out yet
};

extern const struct route routes[];
extern const int n_routes;

// The routes' handlers, each in the file of its name.
void handle_completions(struct request *request); // completions.c
void handle_completion(struct request *request);  // llamacpp.c
void handle_chat(struct request *request);        // chat.c
void handle_apply_template(struct request *request);
void handle_count_chat(struct request *request);
void handle_messages(struct request *request); // messages.c
void handle_count_tokens(struct request *request);
void handle_responses(struct request *request); // responses.c
void handle_response(struct request *request);
void handle_delete_response(struct request *request);
void handle_infill(struct request *request);      // llamacpp.c
void handle_ollama_chat(struct request *request); // ollama.c
void handle_ollama_generate(struct request *request);
void handle_ollama_tags(struct request *request);
void handle_ollama_ps(struct request *request);
void handle_ollama_show(struct request *request);
void handle_ollama_version(struct request *request);
void handle_slots(struct request *request); // slots.c
void handle_slot(struct request *request);
void handle_page(struct request *request); // page.c
void handle_openapi(struct request *request);
void handle_models(struct request *request); // facts.c
void handle_model(struct request *request);
void handle_health(struct request *request);
void handle_metrics(struct request *request);
void handle_props(struct request *request);
void handle_tokenize(struct request *request);
void handle_detokenize(struct request *request);
void handle_embeddings(struct request *request); // vectors.c
void handle_embedding(struct request *request);
void handle_ollama_embed(struct request *request);
void handle_rerank(struct request *request);
