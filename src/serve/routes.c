// Which function answers what.
#include "serve/server.h"

const struct route routes[] = {
    {"POST", "/v1/completions", OPENAI, false, handle_completions},
    {"POST", "/v1/chat/completions", OPENAI, false, handle_chat},
    {"POST", "/v1/chat/completions/input_tokens", OPENAI, false, handle_count_chat},
    {"POST", "/completion", OPENAI, false, handle_completion},
    {"POST", "/v1/responses", RESPONSES, false, handle_responses},
    {"GET", "/v1/responses/", RESPONSES, false, handle_response},
    {"DELETE", "/v1/responses/", RESPONSES, false, handle_delete_response},
    {"POST", "/infill", OPENAI, false, handle_infill},
    {"POST", "/api/chat", OLLAMA, false, handle_ollama_chat},
    {"POST", "/api/generate", OLLAMA, false, handle_ollama_generate},
    {"GET", "/api/tags", OLLAMA, false, handle_ollama_tags},
    {"POST", "/api/show", OLLAMA, false, handle_ollama_show},
    {"GET", "/api/version", OLLAMA, true, handle_ollama_version},
    {"GET", "/version", OPENAI, true, handle_ollama_version},
    {"POST", "/apply-template", OPENAI, false, handle_apply_template},
    {"POST", "/v1/messages", ANTHROPIC, false, handle_messages},
    {"POST", "/v1/messages/count_tokens", ANTHROPIC, false, handle_count_tokens},
    {"GET", "/v1/models", OPENAI, false, handle_models},
    {"GET", "/v1/models/", OPENAI, false, handle_model},
    {"POST", "/v1/embeddings", OPENAI, false, handle_embeddings},
    {"POST", "/tokenize", OPENAI, false, handle_tokenize},
    {"POST", "/detokenize", OPENAI, false, handle_detokenize},
    {"GET", "/", OPENAI, true, handle_page},
    {"GET", "/openapi.json", OPENAI, true, handle_openapi},
    {"GET", "/v1/health", OPENAI, true, handle_health},
    {"GET", "/props", OPENAI, false, handle_props},
    {"GET", "/metrics", OPENAI, false, handle_metrics},
    {"GET", "/slots", OPENAI, false, handle_slots},
};
const int n_routes = sizeof routes / sizeof routes[0];
