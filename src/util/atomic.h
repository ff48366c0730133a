// atomic_bool for C and for C++, which has it under another name; the representation is the same.
#pragma once
#ifdef __cplusplus
#include <atomic>
using std::atomic_bool;
#else
#include <stdatomic.h>
#endif
