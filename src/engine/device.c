#include "engine/device.h"

#include <stdio.h>
#include <string.h>

#include "engine/group.h"
#include "engine/ranks.h"
#include "util/error.h"
#include "util/memory.h"

// What this process computes of the model.
static const struct model_config *config_here(const yalm_model *model)
{
    return model->group ? &model->share.config : &model->config;
}

static const struct model_weights *weights_here(const yalm_model *model)
{
    return model->group ? &model->share.weights : &model->weights;
}

struct backend_plan device_plan(const yalm_model *model, const yalm_session_options *o, const atomic_bool *cancel)
{
    struct backend_plan plan = {
        .config = config_here(model),
        .weights = weights_here(model),
        .container = &model->container,
        .options = o,
        .cancel = cancel,
        // Each behind a lock of its own; all else of a model is constant.
        .weights_copy = (struct shared *)&model->weights_copy,
        .of_cpu = (struct shared *)&model->of_cpu,
        .group = model->group,
    };
    // A batch of several texts may have more tokens than one text.
    const int positions = model->config.bidirectional && o->chunk > o->context ? o->chunk : o->context;
    for (int kind = 0; kind < config_n_kinds(&model->config); kind++) {
        plan.kv[kind] = kv_policy_make(positions, model->config.kinds[kind].sliding_window, o->endless, o->n_sinks, o->chunk);
        if (o->exact)
            kv_policy_align(&plan.kv[kind]);
    }
    return plan;
}

yalm_status device_memory(const struct backend *backend, const struct backend_plan *plan, yalm_memory *memory,
                          yalm_error *error)
{
    *memory = (yalm_memory){.weights = plan->weights->bytes, .available = memory_available()};
    const yalm_status status = backend->memory(plan, memory, error);
    if (!backend->own_memory) // the session's: logits and the sampler's copy of them, tokens
        memory->scratch += (uint64_t)plan->config->vocab_size * 12 + (uint64_t)plan->options->context * 8;
    return status;
}

yalm_status device_has_room(const struct backend *backend, const struct backend_plan *plan, const yalm_memory *memory,
                            yalm_error *error)
{
    // Weights that are mapped from the file may exceed what is free: the system can drop and read them again.
    const uint64_t weights = backend->own_memory ? memory->weights : 0;
    const uint64_t needed = weights + memory->kv_cache + memory->attention + memory->scratch;
    if (needed <= memory->available)
        return YALM_OK;
    char copied[48] = "", kept[64] = "";
    if (weights)
        snprintf(copied, sizeof copied, "weights %.2f, ", (double)weights / 1e9);
    if (memory->attention)
        snprintf(kept, sizeof kept, ", %s attention %.2f", plan->options->attention, (double)memory->attention / 1e9);
    return error_set(
        error, YALM_NO_MEMORY,
        "not enough %smemory for a context of %d: needed %.2f GB (%sKV cache %.2f%s, scratch %.2f), available %.2f GB",
        backend->own_memory ? "device " : "", plan->options->context, (double)needed / 1e9, copied,
        (double)memory->kv_cache / 1e9, kept, (double)memory->scratch / 1e9, (double)memory->available / 1e9);
}

// Whether a session with these options, which the backend completes, can be had there.
static yalm_status can_run(const struct backend *backend, const yalm_model *model, yalm_session_options *options,
                           yalm_error *error)
{
    yalm_status status = backend->resolve(config_here(model), weights_here(model), options, error);
    if (status != YALM_OK)
        return status;
    yalm_memory memory;
    const struct backend_plan plan = device_plan(model, options, NULL);
    status = device_memory(backend, &plan, &memory, error);
    return status ?: device_has_room(backend, &plan, &memory, error);
}

static void say_why_not(struct device_choice *choice, const char *device, const char *why)
{
    static const char prefix[] = "device cuda: "; // of most of its errors
    const size_t n = strncmp(why, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    snprintf(choice->instead_of, sizeof choice->instead_of, "%s: %.400s", device, why + n);
}

yalm_status device_choose(const yalm_model *model, yalm_session_options *options, struct device_choice *choice,
                          yalm_error *error)
{
    const char *device = options->device ? options->device : "auto";
    const bool automatic = strcmp(device, "auto") == 0, cuda = strcmp(device, "cuda") == 0;
    if (!automatic && !cuda && strcmp(device, "cpu") != 0)
        return error_set(error, YALM_USAGE, "device: found '%s', expected auto, cpu or cuda", device);
    *choice = (struct device_choice){.own = &backend_cpu};
    bool unfit;
    if (cuda && model->group && model->group->fp16)
        return error_set(error, YALM_USAGE, "wire: found fp16, expected fp32: GPUs sum in fp32, and by NCCL (-d cpu has both)");
    if (cuda) {
        choice->own = cuda_open(&unfit, error);
        if (!choice->own)
            return error ? error->status : YALM_FAILED;
    } else if (automatic && !model->group && strcmp(options->isa, "auto") == 0) { // who names an instruction set wants the CPU
        yalm_error why = {0};
        const struct backend *found = cuda_open(&unfit, &why);
        yalm_session_options there = *options;
        if (found && can_run(found, model, &there, &why) == YALM_OK)
            choice->own = found;
        else if (found || unfit)
            say_why_not(choice, "cuda", why.text);
    }
    choice->backend = model->group ? ranks_backend(choice->own) : choice->own;
    options->device = choice->backend->name;
    return choice->backend->resolve(config_here(model), weights_here(model), options, error);
}
