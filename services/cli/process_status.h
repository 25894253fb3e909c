#pragma once
// What a process says of itself at GET /statusz.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace millrace::cli {

struct ProcessStatus {
  bool reachable = false;
  bool ready = false;
  bool draining = false;
  std::string phase;
  std::string incarnation;
  uint16_t grpc_port = 0;
  uint16_t admin_port = 0;
  uint16_t http_port = 0;                                 // of a gateway
  std::vector<std::pair<std::string, std::string>> load;  // name -> JSON value, in its order
};

// Never blocks for more than a second; a process that does not answer is not reachable.
ProcessStatus FetchStatus(const std::string& host, uint16_t admin_port);

}  // namespace millrace::cli
