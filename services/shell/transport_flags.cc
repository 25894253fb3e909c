#include "services/shell/transport_flags.h"

#include <vector>

#include "common/transfer/transports/transports.h"

namespace millrace::shell {

void TransportFlags::Describe(config::Schema& schema) {
  std::vector<std::string> names;
  std::string help = "how KV moves between processes:";
  for (const transfer::TransportDescriptor* descriptor : transfer::All()) {
    if (!descriptor->between_processes()) continue;
    names.emplace_back(descriptor->name);
    help += " " + names.back() + " (" + std::string(descriptor->help) + ")";
  }
  schema.Add("transport", &transport, {.help = help, .choices = names});
  schema.Add("transport-lanes", &lanes,
             {.help = "lanes that the transport may use, comma-separated; empty = all it has"});
  schema.Add("transport-devices", &devices,
             {.help = "network devices, comma-separated; empty = loopback when --host is, else all"});
}

StatusOr<std::unique_ptr<transfer::Transport>> TransportFlags::Make(bool on_loopback) const {
  auto made = transfer::MakeTransport(transport, {.lanes = lanes, .devices = devices, .local_only = on_loopback});
  if (made.ok() || made.status().code() != Code::kInvalidArgument || made.status().param().empty()) return made;
  const std::string flag = "transport-" + made.status().param();
  return Status(Code::kInvalidArgument, Reason::kBadValue, "--" + flag + ": " + made.status().message())
      .WithParam(flag);
}

}  // namespace millrace::shell
