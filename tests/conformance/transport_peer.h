#pragma once
// A peer for transport tests: a transport with regions full of a pattern, which can be stopped, resumed and killed. Of
// a transport between processes it is a process of its own (the program transport_peer), told what to do over pipes;
// of one within a process it lives in the test.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/transfer/transports/transports.h"

namespace millrace::transfer {

// Bytes that tell seed and place.
void FillPattern(std::span<std::byte> bytes, uint64_t seed, uint64_t offset = 0);
// Offset of the first byte that differs, or bytes.size().
size_t PatternEnd(std::span<const std::byte> bytes, uint64_t seed, uint64_t offset = 0);

std::string ToHex(std::string_view bytes);
std::string FromHex(std::string_view hex);

struct PeerRegion {
  uint32_t index = 0;
  std::string descriptor;
};

class TestPeer {
 public:
  virtual ~TestPeer() = default;
  virtual const std::string& address() const = 0;
  // `allocated`: in memory from Allocate; else in anonymous pages of the peer. Filled with the pattern of `seed`.
  virtual StatusOr<PeerRegion> AddRegion(size_t size, uint64_t seed, bool allocated) = 0;
  // Destroys the region and unmaps its memory.
  virtual Status DropRegion(uint32_t index) = 0;
  virtual void Signal(PeerSignal signal) = 0;
  virtual pid_t pid() const = 0;  // own pid for a peer in the test
};

// In this process.
class LocalPeer final : public TestPeer {
 public:
  LocalPeer(const TransportDescriptor& kind, std::unique_ptr<Transport> transport);
  ~LocalPeer() override;
  const std::string& address() const override { return transport_->address(); }
  StatusOr<PeerRegion> AddRegion(size_t size, uint64_t seed, bool allocated) override;
  Status DropRegion(uint32_t index) override;
  void Signal(PeerSignal signal) override;
  pid_t pid() const override;
  Transport& transport() { return *transport_; }

 private:
  struct Held {
    std::unique_ptr<Memory> memory;
    std::unique_ptr<Region> region;
  };
  const TransportDescriptor& kind_;
  std::unique_ptr<Transport> transport_;
  std::map<uint32_t, Held> regions_;
  uint32_t next_ = 0;
};

// In a process of its own.
class ProcessPeer final : public TestPeer {
 public:
  // `own_ipc`: in an IPC namespace of its own, as a pod has; kUnavailable where this user may not make one.
  static StatusOr<std::unique_ptr<ProcessPeer>> Spawn(const TransportDescriptor& kind, const TransportOptions& options,
                                                      bool own_ipc);
  ~ProcessPeer() override;
  const std::string& address() const override { return address_; }
  StatusOr<PeerRegion> AddRegion(size_t size, uint64_t seed, bool allocated) override;
  Status DropRegion(uint32_t index) override;
  void Signal(PeerSignal signal) override;
  pid_t pid() const override { return pid_; }

  // Starts gets of the whole region over a link of the peer, one after the other, until it is told to stop.
  Status StartReading(const std::string& address, const std::string& descriptor, size_t size);
  // Returns how many gets completed well.
  StatusOr<uint64_t> StopReading();

 private:
  ProcessPeer(pid_t pid, int in, int out) : pid_(pid), in_(in), out_(out) {}
  // One line there, one line back within 20 s; the words after "ok".
  StatusOr<std::string> Call(const std::string& line);

  const pid_t pid_;
  const int in_;
  const int out_;
  std::string received_;
  std::string address_;
};

StatusOr<std::unique_ptr<TestPeer>> MakePeer(const TransportDescriptor& kind, const TransportOptions& options);

}  // namespace millrace::transfer
