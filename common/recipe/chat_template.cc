#include "common/recipe/chat_template.h"

#include <algorithm>
#include <utility>

#include "common/recipe/jinja/ast.h"
#include "common/recipe/jinja/failure.h"
#include "common/recipe/jinja/interpreter.h"
#include "common/recipe/jinja/parser.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe {
namespace {

Status ToStatus(const jinja::Failure& failure) {
  if (failure.kind == jinja::FailureKind::kRaised) return InvalidArgument(failure.message);
  const std::string text = "chat template: " + std::string(FailureName(failure.kind)) + ": " + failure.message;
  if (failure.kind == jinja::FailureKind::kLimit) return {Code::kResourceExhausted, text};
  return InvalidArgument(text);
}

class CompiledTemplate final : public ChatTemplate {
 public:
  explicit CompiledTemplate(jinja::Block block) : block_(std::move(block)) {}

  StatusOr<std::vector<Segment>> Render(Variables variables, int64_t now_unix_s) const override {
    try {
      jinja::Interpreter interpreter(std::move(variables), now_unix_s);
      return interpreter.Run(block_).ToSegments();
    } catch (const jinja::Failure& failure) {
      return ToStatus(failure);
    }
  }

 private:
  const jinja::Block block_;
};

jinja::Value RoleValue(const std::string& role) {
  static constexpr std::string_view kKnown[] = {"system", "developer", "user", "assistant", "tool"};
  const bool known = std::find(std::begin(kKnown), std::end(kKnown), role) != std::end(kKnown);
  return known ? jinja::Value::Literal(role) : jinja::Value::Content(ReplaceInvalidUtf8(role));
}

}  // namespace

StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Compile(std::string_view source) {
  if (!IsValidUtf8(source)) return InvalidArgument("chat template: it is not UTF-8");
  try {
    return std::shared_ptr<const ChatTemplate>(std::make_shared<CompiledTemplate>(jinja::Parse(source)));
  } catch (const jinja::Failure& failure) {
    return ToStatus(failure);
  }
}

ChatTemplate::Variables ConversationVariables(const Conversation& conversation) {
  jinja::List messages;
  for (const Message& message : conversation.messages) {
    jinja::Dict dict;
    dict.Set(jinja::Value::Literal("role"), RoleValue(message.role));
    if (message.content) {
      std::string text;
      for (const std::string& part : *message.content) text += part;
      dict.Set(jinja::Value::Literal("content"), jinja::Value::Content(ReplaceInvalidUtf8(text)));
    } else {
      dict.Set(jinja::Value::Literal("content"), jinja::None{});
    }
    if (!message.name.empty()) {
      dict.Set(jinja::Value::Literal("name"), jinja::Value::Content(ReplaceInvalidUtf8(message.name)));
    }
    messages.items.emplace_back(std::move(dict));
  }
  ChatTemplate::Variables variables;
  variables.emplace("messages", std::move(messages));
  variables.emplace("add_generation_prompt", conversation.add_generation_prompt);
  return variables;
}

}  // namespace millrace::recipe
