#pragma once
// What two UCX transports say to each other: addresses and descriptors over the control plane, and the headers of the
// active messages. Both ends are little-endian.

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/transfer/blob.h"

namespace millrace::transfer::ucx {

struct Address {
  TransportId id{};
  std::string host;            // boot id of the kernel
  std::string worker_address;  // UCX's; empty when the transport has no network lane
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

// The kernel's boot id: equal for all processes of one running machine.
std::string HostId();

constexpr uint32_t kWireVersion = 1;

enum MessageId : unsigned {
  kHello = 1,    // reader -> owner; data: EncodeAddress of the reader's own worker
  kWelcome = 2,  // owner -> reader
  kRequest = 3,  // reader -> owner
  kBytes = 4,    // owner -> reader; data: the bytes asked for, or none with an error
};
struct HelloHeader {
  uint32_t version;
  uint32_t reserved;
  uint64_t client;  // names the reader's link in its requests
  TransportId owner;
};
struct WelcomeHeader {
  uint32_t version;
  uint32_t code;  // millrace::Code
  uint64_t client;
};
struct RequestHeader {
  uint64_t client;
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
