#pragma once
// Where tests find the default model and the source tree.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace millrace::test {

inline std::string EnvironmentOr(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

inline std::string SourceDir() { return EnvironmentOr("MILLRACE_SOURCE_DIR", "."); }

// The default model: MILLRACE_TEST_MODEL, else its place in the cache. "" when it is not on this machine: the test
// then skips.
inline std::string TestModelPath() {
  const std::string cache = EnvironmentOr("XDG_CACHE_HOME", EnvironmentOr("HOME", "/nonexistent") + "/.cache");
  const std::string path = EnvironmentOr("MILLRACE_TEST_MODEL", cache + "/millrace/models/smollm2-135m-instruct.gguf");
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace millrace::test
