#include "common/transfer/transports/transports.h"

namespace millrace::transfer {

StatusOr<std::unique_ptr<Transport>> MakeTransport(std::string_view name, const TransportOptions& options) {
  std::string known;
  for (const TransportDescriptor* descriptor : All()) {
    if (descriptor->name == name) return descriptor->make(options);
    known += (known.empty() ? "" : ", ") + std::string(descriptor->name);
  }
  return InvalidArgument("no transport '" + std::string(name) + "'; there are " + known);
}

}  // namespace millrace::transfer
