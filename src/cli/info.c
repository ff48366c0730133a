// Mode info: what is in a model file; mode verify: whether its tensors are what was written.
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static void shape_text(char *text, size_t room, const yalm_tensor_info *tensor)
{
    size_t n = 0;
    for (int i = 0; i < tensor->rank && n < room; i++)
        n += (size_t)snprintf(text + n, room - n, "%s%" PRId64, i ? " x " : "", tensor->shape[i]);
}

static const char *const methods[] = {"dense", "sparq", "nomad", "hybrid"};
enum { METHODS = sizeof methods / sizeof methods[0] };

// What a session with this attention and otherwise the default options takes; false where it cannot be had, for want of a
// file, say.
static bool method_memory(const yalm_model *model, const char *method, yalm_memory *memory)
{
    yalm_session_options options = yalm_session_defaults();
    options.device = "cpu";
    options.attention = method;
    return yalm_session_memory(model, &options, memory, NULL) == YALM_OK;
}

static void print_memory(const yalm_model *model)
{
    for (int i = 0; i < METHODS; i++) {
        yalm_memory memory;
        if (!method_memory(model, methods[i], &memory))
            continue;
        printf("%s", i == 0 ? "session memory   " : "                 ");
        printf("%s attention: cache %s", methods[i], human_bytes(memory.kv_cache));
        if (memory.attention)
            printf(", beside it %s", human_bytes(memory.attention));
        printf(", scratch %s\n", human_bytes(memory.scratch));
    }
}

static void print_tensors(const yalm_model *model)
{
    const int n = yalm_model_n_tensors(model);
    int width = 6;
    for (int i = 0; i < n; i++) {
        const int length = (int)strlen(yalm_model_tensor(model, i).name);
        width = length > width ? length : width;
    }
    printf("\n%-*s  type      %-16s %14s %14s  checksum\n", width, "tensor", "shape", "offset", "bytes");
    for (int i = 0; i < n; i++) {
        const yalm_tensor_info tensor = yalm_model_tensor(model, i);
        char shape[96] = "";
        shape_text(shape, sizeof shape, &tensor);
        printf("%-*s  %-8s  %-16s %14" PRIu64 " %14" PRIu64 "  %016" PRIx64 "\n", width, tensor.name, tensor.dtype, shape,
               tensor.offset, tensor.bytes, tensor.checksum);
    }
}

static void print_text(const struct options *options, const yalm_model *model)
{
    const yalm_model_info *facts = yalm_model_facts(model);
    printf("file             %s, %s\n", options->named, human_bytes(facts->file_bytes));
    printf("name             %s\n", plain(facts->name));
    printf("architecture     %s\n", facts->architecture);
    printf("parameters       %" PRId64 "\n", facts->n_params);
    printf("weights          %s, %s\n", facts->weight_dtype, human_bytes(facts->weight_bytes));
    printf("layers           %d\n", facts->n_layers);
    printf("hidden, ffn      %d, %d\n", facts->hidden_dim, facts->ffn_dim);
    printf("heads            %d query, %d key/value, of %d\n", facts->n_heads, facts->n_kv_heads, facts->head_dim);
    if (facts->n_experts)
        printf("experts          %d, %d active\n", facts->n_experts, facts->n_active_experts);
    printf("vocabulary       %d, %d known to the tokenizer (%s)\n", facts->vocab_size, facts->tokenizer_vocab,
           facts->tokenizer);
    printf("bos              %d%s\n", facts->bos, facts->bos < 0 ? " (none)" : facts->add_bos ? ", begins a text" : "");
    printf("eos             ");
    for (int i = 0; i < facts->n_eos; i++)
        printf(" %d", facts->eos[i]);
    printf("%s\n", facts->n_eos ? "" : " none");
    printf("context          %d positions, rope %s\n", facts->context_length, facts->rope_type);
    if (facts->sliding_window)
        printf("sliding window   %d, in %d of %d layers\n", facts->sliding_window, facts->n_windowed_layers, facts->n_layers);
    if (facts->mtp)
        printf("MTP head         yes\n");
    if (facts->n_recurrent_layers)
        printf("recurrent        %d of %d layers\n", facts->n_recurrent_layers, facts->n_layers);
    printf("chat template    %s\n", facts->chat_template ? "yes" : "none");
    print_memory(model);
    printf("checksum         %016" PRIx64 "\n", facts->checksum);
    if (options->verbose)
        print_tensors(model);
    else
        printf("tensors          %d (-v lists them)\n", yalm_model_n_tensors(model));
}

static void add_hex(cJSON *object, const char *name, uint64_t value)
{
    char hex[24];
    snprintf(hex, sizeof hex, "%016" PRIx64, value);
    cJSON_AddStringToObject(object, name, hex);
}

static void add_facts(cJSON *root, const yalm_model_info *facts)
{
    cJSON_AddStringToObject(root, "name", facts->name);
    cJSON_AddStringToObject(root, "architecture", facts->architecture);
    cJSON_AddStringToObject(root, "weight_dtype", facts->weight_dtype);
    cJSON_AddStringToObject(root, "rope_type", facts->rope_type);
    cJSON_AddStringToObject(root, "tokenizer", facts->tokenizer);
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"n_params", (double)facts->n_params},
        {"n_layers", facts->n_layers},
        {"hidden_dim", facts->hidden_dim},
        {"ffn_dim", facts->ffn_dim},
        {"n_heads", facts->n_heads},
        {"n_kv_heads", facts->n_kv_heads},
        {"head_dim", facts->head_dim},
        {"vocab_size", facts->vocab_size},
        {"tokenizer_vocab", facts->tokenizer_vocab},
        {"context_length", facts->context_length},
        {"sliding_window", facts->sliding_window},
        {"n_windowed_layers", facts->n_windowed_layers},
        {"n_recurrent_layers", facts->n_recurrent_layers},
        {"n_experts", facts->n_experts},
        {"n_active_experts", facts->n_active_experts},
        {"bos", facts->bos},
        {"file_bytes", (double)facts->file_bytes},
        {"weight_bytes", (double)facts->weight_bytes},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddNumberToObject(root, numbers[i].name, numbers[i].value);
    cJSON_AddBoolToObject(root, "add_bos", facts->add_bos);
    cJSON_AddBoolToObject(root, "mtp", facts->mtp);
    cJSON *eos = cJSON_AddArrayToObject(root, "eos");
    for (int i = 0; i < facts->n_eos; i++)
        cJSON_AddItemToArray(eos, cJSON_CreateNumber(facts->eos[i]));
    if (facts->chat_template)
        cJSON_AddStringToObject(root, "chat_template", facts->chat_template);
    else
        cJSON_AddNullToObject(root, "chat_template");
    add_hex(root, "checksum", facts->checksum);
}

static void add_memory(cJSON *root, const yalm_model *model)
{
    cJSON *rows = cJSON_AddArrayToObject(root, "session_memory");
    for (int i = 0; i < METHODS; i++) {
        yalm_memory memory;
        if (!method_memory(model, methods[i], &memory))
            continue;
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "attention", methods[i]);
        cJSON_AddNumberToObject(row, "kv_cache", (double)memory.kv_cache);
        cJSON_AddNumberToObject(row, "beside", (double)memory.attention);
        cJSON_AddNumberToObject(row, "scratch", (double)memory.scratch);
        cJSON_AddItemToArray(rows, row);
    }
}

static yalm_status print_json(const struct options *options, const yalm_model *model, yalm_error *error)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "file", options->model); // of a model that was converted, the copy
    add_facts(root, yalm_model_facts(model));
    add_memory(root, model);
    cJSON *tensors = cJSON_AddArrayToObject(root, "tensors");
    for (int i = 0; i < yalm_model_n_tensors(model); i++) {
        const yalm_tensor_info tensor = yalm_model_tensor(model, i);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", tensor.name);
        cJSON_AddStringToObject(item, "dtype", tensor.dtype);
        cJSON *shape = cJSON_AddArrayToObject(item, "shape");
        for (int k = 0; k < tensor.rank; k++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor.shape[k]));
        cJSON_AddNumberToObject(item, "offset", (double)tensor.offset);
        cJSON_AddNumberToObject(item, "bytes", (double)tensor.bytes);
        add_hex(item, "checksum", tensor.checksum);
        cJSON_AddItemToArray(tensors, item);
    }
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (text == NULL)
        return cli_no_memory(error);
    yalm_status status = output(text, strlen(text), error);
    free(text);
    return status ?: output("\n", 1, error);
}

yalm_status run_info(const struct options *options, const yalm_model *model, yalm_error *error)
{
    yalm_status status = YALM_OK;
    if (options->info_format == INFO_JSON)
        status = print_json(options, model, error);
    else
        print_text(options, model);
    return status;
}

yalm_status run_verify(const struct options *options, const yalm_model *model, yalm_error *error)
{
    const int n = yalm_model_n_tensors(model);
    uint64_t total = 0, done = 0;
    for (int i = 0; i < n; i++)
        total += yalm_model_tensor(model, i).bytes;
    yalm_status status = YALM_OK;
    for (int i = 0; i < n && status == YALM_OK; i++) {
        const yalm_tensor_info tensor = yalm_model_tensor(model, i);
        progress("%3.0f %%  %s", total ? 100.0 * (double)done / (double)total : 100.0, tensor.name);
        status = yalm_model_verify_tensor(model, i, error);
        done += tensor.bytes;
    }
    progress_clear();
    if (status == YALM_OK)
        printf("%s: %d tensors, %s: every checksum is right\n", options->named, n, human_bytes(done));
    return status;
}
