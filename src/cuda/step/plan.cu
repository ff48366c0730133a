// All of a recipe's steps as phases (plan.h).
#include "cuda/step/writer.h"

int step_most_phases(const struct recipe *recipe)
{
    int n = 0;
    for (int i = 0; i < recipe->n; i++) {
        const struct step *step = &recipe->steps[i];
        n += 2 + step->n_w + (step->op == OP_EXPERTS ? step->n_active : 0);
    }
    return n;
}

// Twice: how often words are written in all tells which parity they have in each launch.
void step_write_phases(struct step_plan *plan, const struct cuda_state *s, float *words)
{
    struct step_phase *const phases = plan->phases;
    struct step_writer w = {};
    w.to = plan;
    w.s = s;
    w.words = words;
    for (int pass = 0; pass < 2; pass++) {
        plan->phases = pass == 0 ? NULL : phases;
        plan->n = 0;
        plan->layer_bytes = 0;
        plan->fits = true;
        memset(w.latest, 0, sizeof w.latest);
        for (int i = 0; i < s->recipe.n; i++)
            write_step(&w, &s->recipe.steps[i]);
        for (int i = 0; i < w.n_spans; i++) {
            w.spans[i].total = w.spans[i].written;
            w.spans[i].written = 0;
        }
    }
}
