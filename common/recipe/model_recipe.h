#pragma once
// What turns requests of one model into prompts and its ids into text: tokenizer, chat template, ids that stop it.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/recipe/conversation.h"
#include "common/recipe/tokenizer.h"

namespace millrace::recipe {

// Immutable; thread-safe.
class ModelRecipe {
 public:
  // `chat_template` is Jinja source; empty = the model has none. kInvalidArgument when it does not parse.
  static StatusOr<std::shared_ptr<const ModelRecipe>> Create(TokenizerSpec spec, std::string_view chat_template);
  virtual ~ModelRecipe() = default;

  virtual std::shared_ptr<const Tokenizer> tokenizer() const = 0;
  // Ids after which an answer is over unless the request ignores them; sorted.
  virtual const std::vector<TokenId>& stop_ids() const = 0;

  // The prompt of a chat, BOS once where the model wants it. Content never becomes a control token. kInvalidArgument
  // with the template's own message when it refuses the conversation; kFailedPrecondition when the model has no
  // template.
  virtual StatusOr<std::vector<TokenId>> RenderChat(const Conversation& conversation) const = 0;
  // The prompt of a completion, BOS once where the model wants it; control tokens may be spelled out.
  virtual std::vector<TokenId> EncodeText(std::string_view text) const = 0;
  virtual bool has_chat_template() const = 0;
};

}  // namespace millrace::recipe
