#include "common/peer/addresses.h"

#include <algorithm>

namespace millrace::peer {

StaticAddresses::StaticAddresses(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {
  std::sort(addresses_.begin(), addresses_.end());
  addresses_.erase(std::unique(addresses_.begin(), addresses_.end()), addresses_.end());
}

}  // namespace millrace::peer
