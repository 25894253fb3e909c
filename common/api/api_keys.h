#pragma once
// Who may use the API. A key also names a tenant: tenants never share cached KV.

#include <map>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/http/message.h"

namespace millrace::api {

// Immutable; thread-safe. Keeps hashes, not keys.
class ApiKeys {
 public:
  ApiKeys() = default;  // everybody is welcome, as one tenant
  // One key a line; empty lines and lines that start with '#' don't count. At least one key.
  static StatusOr<ApiKeys> Parse(std::string_view text);
  static StatusOr<ApiKeys> Load(const std::string& path);

  // The tenant's salt ("" when there are no keys), from `x-api-key` or `Authorization: Bearer`; kUnauthenticated.
  StatusOr<std::string> Check(const http::Request& request) const;
  bool open() const { return tenants_.empty(); }

 private:
  std::map<std::string, std::string> tenants_;  // hash of the key -> salt
};

}  // namespace millrace::api
