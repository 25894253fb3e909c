#pragma once
// What can be known to be wrong before any process of a cluster starts.

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "services/cli/topology.h"

namespace millrace::cli {

// The binaries are there, files can be read, the model opens and has the context. Each error says what to do.
Status CheckFiles(const UpConfig& config, const std::string& programs);

// A server can listen on host:port; port 0 = any free one.
Status CheckListen(const std::string& host, uint16_t port);

// The folder of the running program.
StatusOr<std::string> ProgramFolder();

}  // namespace millrace::cli
