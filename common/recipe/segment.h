#pragma once
// Text that remembers where it came from, and token ids: the two ends of prompt building.

#include <cstdint>
#include <string>

namespace millrace::recipe {

using TokenId = int32_t;

// A run of a prompt. Control tokens are recognised in text the template's author wrote and never in content: what a
// user, a tool or a document supplied.
struct Segment {
  std::string text;
  bool is_content = false;
  friend bool operator==(const Segment&, const Segment&) = default;
};

}  // namespace millrace::recipe
