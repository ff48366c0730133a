#pragma once
// From now on accesses that trap on this thread are explained.
void trap_prepare(void);
