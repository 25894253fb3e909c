#include "common/rpc/addresses.h"
#include "common/rpc/dialer.h"
#include "common/rpc/server.h"
