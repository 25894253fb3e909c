#include "common/transfer/transport.h"
