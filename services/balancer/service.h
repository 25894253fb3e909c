#pragma once
// The balancer service, whatever its role: settings and wiring of runtime::BalancerRuntime. A role's own folder names
// the role.

#include "services/shell/process.h"

namespace millrace::balancer {

// The whole life of the process that balances `pool`, a worker role. Returns the exit status.
int Main(const shell::Program& program, cluster::Role pool, int argc, char** argv);

}  // namespace millrace::balancer
