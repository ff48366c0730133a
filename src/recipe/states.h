#pragma once
#include "recipe/writer.h"

// x += o · what the delta rule, or a scan, makes of q, k and v of rmsnorm(x)
void put_recurrence(struct writer *out);

// x += o · (q ∘ convolution of k ∘ v), of what rmsnorm(x) is multiplied by
void put_convolution(struct writer *out);

// to = what a scan makes of C, B and x of rmsnorm(x). Beside attention its input was observed there.
void put_scan(struct writer *out, enum buffer to);

// x += its matrix o · from
void put_scan_sum(struct writer *out, enum buffer from);
