// Memory nodes: a machine of several sockets has memory at each, and a core reads its own node's fastest.
#pragma once
#include <stddef.h>

// nodes[i]: the node of hardware thread cpus[i], for each of n; 0 where the system does not say, or cpus[i] is negative.
void nodes_of(const int *cpus, int n, int *nodes);

// Moves the whole pages of [at, at + bytes), which are the process's own, to a node. Best effort: where the node is full, or
// the system refuses, pages stay where they are.
void nodes_move(const void *at, size_t bytes, int node);
