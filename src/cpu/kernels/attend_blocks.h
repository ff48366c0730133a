// What attend() of many queries takes together, from the first key that any of them sees on. Where a block of keys begins shows
// in the last bits of the sums.
#pragma once

enum { ATTEND_BLOCK_KEYS = 192 }; // whole groups of tiles
