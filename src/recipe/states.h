#pragma once
#include "recipe/writer.h"

// x += o · what the delta rule, or a scan, makes of q, k and v of rmsnorm(x)
void put_recurrence(struct recipe_writer *out);

// x += o · (q ∘ convolution of k ∘ v), of what rmsnorm(x) is multiplied by
void put_convolution(struct recipe_writer *out);

// to = what a scan makes of C, B and x of rmsnorm(x). Beside attention its input was observed there.
void put_scan(struct recipe_writer *out, enum recipe_buffer to);

// x += its matrix o · from
void put_scan_sum(struct recipe_writer *out, enum recipe_buffer from);
