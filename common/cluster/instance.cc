#include "common/cluster/instance.h"

namespace millrace::cluster {

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kGateway:
      return "gateway";
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      return "decode";
    case Role::kStore:
      return "store";
    case Role::kPrefillBalancer:
      return "prefill-balancer";
    case Role::kDecodeBalancer:
      return "decode-balancer";
  }
  return "unknown";
}

}  // namespace millrace::cluster
