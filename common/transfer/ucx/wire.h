#pragma once
// What two UCX transports say to each other: addresses and descriptors over the control plane, and the headers of the
// active messages. Both ends are little-endian.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/transfer/blob.h"

namespace millrace::transfer::ucx {

// Equal for two processes that can reach each other in the way named.
struct HostIdentity {
  std::string boot;     // boot id of the kernel: one running machine
  std::string network;  // its network namespace: one loopback device
  friend bool operator==(const HostIdentity&, const HostIdentity&) = default;
};
HostIdentity ThisHost();

struct Address {
  TransportId id{};
  HostIdentity host;
  std::vector<std::string> sockets;  // "10.0.0.7:4711" where it listens; empty without network lanes
};
std::string EncodeAddress(const Address& address);
StatusOr<Address> DecodeAddress(const std::string& blob);

struct RegionDescriptor {
  TransportId owner{};
  uint64_t region = 0;  // 64 random bits
  uint64_t size = 0;
  // Where it lies in shared memory; empty domain when it does not.
  std::string domain;         // UCX memory domain, "sysv"
  std::string key;            // packed remote key of the segment
  uint64_t segment_base = 0;  // address in the owner
  uint64_t segment_size = 0;
  uint64_t segment_nonce = 0;
  uint64_t offset = 0;  // of the region in the segment
};
std::string EncodeRegion(const RegionDescriptor& region);
StatusOr<RegionDescriptor> DecodeRegion(const std::string& blob);

constexpr uint32_t kWireVersion = 1;

enum MessageId : unsigned {
  kHello = 1,    // reader -> owner, first
  kWelcome = 2,  // owner -> reader
  kRequest = 3,  // reader -> owner
  kBytes = 4,    // owner -> reader; data: the bytes asked for, or none with an error
};
struct HelloHeader {
  uint32_t version;
  uint32_t reserved;
  TransportId owner;  // the one meant
};
struct WelcomeHeader {
  uint32_t version;
  uint32_t code;  // millrace::Code
};
struct RequestHeader {
  uint64_t region;
  uint64_t offset;
  uint64_t length;
  uint64_t request;
};
struct BytesHeader {
  uint64_t request;
  uint32_t code;  // millrace::Code
  uint32_t reserved;
};

}  // namespace millrace::transfer::ucx
