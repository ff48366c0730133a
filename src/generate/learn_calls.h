// How a model writes calls, from its chat template.
#pragma once
#include "speech/form.h"
#include "yalm.h"

void learn_calls(struct call_form *form, const yalm_model *model);
