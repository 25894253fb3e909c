#include "common/store/tier.h"
