// The table of tensors in the metadata.
#pragma once
#include "model/container.h"

// Fills container->tensors and ->by_name from container->metadata. The first tensor begins at `data_offset`, the last one ends
// where the file does. Partial results are left to container_close().
yalm_status table_read(struct container *container, uint64_t data_offset, yalm_error *error);
