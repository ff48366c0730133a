// What a step costs a token.
#pragma once
#include "recipe/recipe.h"

// Weights that are read, but for the norm before the step, which several share; multiplications and additions, but attention's.
struct cost step_cost(const struct step *step, const struct model_config *config);
