// Includes the engine's C headers as C++ reads them. Headers of C++ and of the system that they include come first, outside.
#pragma once
#include <cjson/cJSON.h>

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

extern "C" {
#include "engine/backend.h"
#include "engine/group.h"
#include "engine/hybrid.h"
#include "engine/settings.h"
#include "model/bf12.h"
#include "model/codebook.h"
#include "model/key_offset.h"
#include "model/quant.h"
#include "model/rope.h"
#include "model/share.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/memory.h"
#include "util/round.h"
}
