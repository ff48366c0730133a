#include "yalm.h"

#if defined __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

#ifdef __aarch64__
#define ISAS "scalar neon neondot neoni8mm"
#else
#define ISAS "scalar avx2 avxvnni avx512 avx512vnni amx"
#endif

const char *yalm_version(void)
{
    return YALM_VERSION " (commit " YALM_COMMIT ", " COMPILER "; cpu: " ISAS "; cuda: none)";
}
