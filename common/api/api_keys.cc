#include "common/api/api_keys.h"

#include <fstream>
#include <sstream>

#include "common/kv/sha256.h"

namespace millrace::api {

namespace {

std::string Hash(const std::string& text) { return kv::HexString(kv::Sha256(text.data(), text.size())); }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::string_view BearerToken(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() < kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); ++i) {
    char c = value[i] >= 'A' && value[i] <= 'Z' ? static_cast<char>(value[i] + 32) : value[i];
    if (c != kScheme[i]) return {};
  }
  return Trim(value.substr(kScheme.size()));
}

}  // namespace

StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text) {
  ApiKeys keys;
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view key = Trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (key.empty() || key.front() == '#') continue;
    keys.tenants_[Hash(std::string(key))] = Hash("millrace-tenant\n" + std::string(key)).substr(0, 32);
  }
  if (keys.tenants_.empty()) return InvalidArgument("the API key file holds no key; put one on a line");
  return keys;
}

StatusOr<ApiKeys> ApiKeys::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound("API key file '" + path + "' can't be read");
  std::stringstream text;
  text << file.rdbuf();
  StatusOr<ApiKeys> keys = Parse(text.str());
  return keys.ok() ? std::move(keys) : keys.status().Annotate(path);
}

StatusOr<std::string> ApiKeys::Check(const http::Request& request) const {
  if (open()) return std::string();
  std::string_view key = Trim(request.HeaderValue("x-api-key"));
  if (key.empty()) key = BearerToken(request.HeaderValue("authorization"));
  if (key.empty()) {
    return Status(Code::kUnauthenticated, "No API key was given. Send it as 'Authorization: Bearer KEY'.");
  }
  auto it = tenants_.find(Hash(std::string(key)));
  if (it == tenants_.end()) return Status(Code::kUnauthenticated, "The API key is not valid here.");
  return it->second;
}

}  // namespace millrace::api
