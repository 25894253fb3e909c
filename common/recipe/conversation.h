#pragma once
// A chat as the API receives it, before any template. Values; nothing here is checked against a model.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace::recipe {

struct Message {
  std::string role;  // "system", "developer", "user", "assistant" or "tool"
  // The text of a plain string, or one entry for each text part in order; unset = null.
  std::optional<std::vector<std::string>> content;
  std::string name;  // empty = none
  friend bool operator==(const Message&, const Message&) = default;
};

struct Conversation {
  std::vector<Message> messages;
  bool add_generation_prompt = true;  // false: the prompt ends with the last message
  int64_t now_unix_s = 0;             // the time that templates may print, UTC
  friend bool operator==(const Conversation&, const Conversation&) = default;
};

}  // namespace millrace::recipe
