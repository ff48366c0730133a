// Where weights lie on a machine of several memory nodes.
#pragma once
#include "cpu/state.h"

// Moves each member's share of every step's weights to the node of the core that it stays on. The weights are the process's own
// (machine.hugepages), members stay (machine.pin). Nothing happens where all cores are of one node.
void places_weights(const struct cpu_state *s);
