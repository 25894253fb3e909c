#include "common/engine/backend.h"
