// The vectors of the instruction set that this file is compiled for (by its name: see the Makefile).
#pragma once

#ifdef __AVX512F__
#include "cpu/vec_avx512.h"
#else
#include "cpu/vec_avx2.h"
#endif
