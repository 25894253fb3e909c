#pragma once
// Chat templates: the Jinja programs that models carry, run by our own interpreter.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/recipe/conversation.h"
#include "common/recipe/jinja/value.h"
#include "common/recipe/segment.h"

namespace millrace::recipe {

// Immutable; thread-safe.
class ChatTemplate {
 public:
  using Variables = std::map<std::string, jinja::Value, std::less<>>;

  // kInvalidArgument says what does not parse and in which line.
  static StatusOr<std::shared_ptr<const ChatTemplate>> Compile(std::string_view source);
  virtual ~ChatTemplate() = default;

  // The text with what the variables hold as content marked as such. kInvalidArgument with the template's own message
  // when it refuses, else with what went wrong; kResourceExhausted when it runs too long or grows too large.
  // `now_unix_s`: what strftime_now shows, UTC.
  virtual StatusOr<std::vector<Segment>> Render(Variables variables, int64_t now_unix_s) const = 0;
};

// "messages" and "add_generation_prompt" of a conversation. Text is content; roles that the API knows are not, since
// templates build control tokens from them.
ChatTemplate::Variables ConversationVariables(const Conversation& conversation);

}  // namespace millrace::recipe
