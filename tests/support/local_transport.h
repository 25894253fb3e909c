#pragma once
// LocalFabric: transports between "processes" of one test, driven by an executor, with faults on demand. Bytes are
// copied and completions called in tasks of that executor, one get a task, so with VirtualTime every interleaving of
// copies with everything else can be had. Not thread-safe: for virtual executors.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/base/executor.h"
#include "common/transfer/transport.h"

namespace millrace::support {

struct LocalFabricState;

class LocalFabric {
 public:
  explicit LocalFabric(Executor& executor);
  ~LocalFabric();

  std::unique_ptr<transfer::Transport> MakeTransport(const std::string& name);

  // Gets from `source` wait, as from a stopped process, until Release or until their link is destroyed.
  void Hold(const std::string& source);
  void Release(const std::string& source);
  void CorruptNext(uint32_t gets);  // one wrong byte each, reported as OK
  void FailNext(uint32_t gets);     // kUnavailable(kPeerLost)
  uint64_t gets() const;            // begun so far
  uint64_t pending() const;         // begun and not completed
  uint32_t links() const;           // alive

 private:
  std::shared_ptr<LocalFabricState> state_;
};

}  // namespace millrace::support
