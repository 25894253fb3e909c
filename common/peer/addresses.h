#pragma once
// Where the replicas of a role are. Thread-safe; never blocks: adapters resolve DNS names in the background.

#include <string>
#include <vector>

namespace millrace::peer {

class AddressSource {
 public:
  virtual ~AddressSource() = default;
  // host:port of each replica known now, sorted, without repeats; empty until a name resolved.
  virtual std::vector<std::string> Addresses() const = 0;
};

// A fixed list.
class StaticAddresses final : public AddressSource {
 public:
  explicit StaticAddresses(std::vector<std::string> addresses);
  std::vector<std::string> Addresses() const override { return addresses_; }

 private:
  std::vector<std::string> addresses_;
};

}  // namespace millrace::peer
