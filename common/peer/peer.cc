#include "common/peer/protocols.h"
#include "common/peer/stream.h"
