#pragma once
// Addresses of a role's replicas from DNS.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/base/time.h"
#include "common/peer/addresses.h"

namespace millrace::rpc {

struct DnsOptions {
  Duration refresh = Seconds(3);  // between the end of one resolution and the start of the next
  // IP addresses of a host name, without brackets; may block; called on a thread of its own, where a call under way
  // may outlive the DnsAddresses. Empty = the system's resolver.
  std::function<StatusOr<std::vector<std::string>>(const std::string& host)> resolve;
};

// A comma list of host:port, where a host is an IPv4 address, an IPv6 address in brackets, or a DNS name with any
// number of addresses. Names are resolved again and again in the background; one that fails keeps its last good answer.
// An empty list is allowed and stays empty.
class DnsAddresses final : public peer::AddressSource {
 public:
  // kInvalidArgument names the entry that is not host:port.
  static StatusOr<std::unique_ptr<DnsAddresses>> Create(std::string_view list, DnsOptions options = {});
  ~DnsAddresses() override;  // does not wait for a resolution under way

  std::vector<std::string> Addresses() const override;

 private:
  struct State;
  explicit DnsAddresses(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace millrace::rpc
