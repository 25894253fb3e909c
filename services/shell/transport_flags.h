#pragma once
// The flags --transport, --transport-lanes and --transport-devices of every process that moves KV.

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/config/schema.h"
#include "common/transfer/transport.h"

namespace millrace::shell {

struct TransportFlags {
  std::string transport = "ucx";
  std::string lanes;
  std::string devices;

  void Describe(config::Schema& schema);
  // `on_loopback`: this process can be reached from its own host only. An option that the transport cannot use is
  // kInvalidArgument with kBadValue and the flag as param.
  StatusOr<std::unique_ptr<transfer::Transport>> Make(bool on_loopback) const;
};

}  // namespace millrace::shell
