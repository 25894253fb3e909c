#include "common/recipe/model_recipe.h"

#include <utility>

#include "common/recipe/chat_template.h"

namespace millrace::recipe {
namespace {

class TemplatedRecipe final : public ModelRecipe {
 public:
  TemplatedRecipe(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat_template)
      : tokenizer_(std::move(tokenizer)), chat_template_(std::move(chat_template)) {}

  std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  const std::vector<TokenId>& stop_ids() const override { return tokenizer_->stop_ids(); }
  bool has_chat_template() const override { return chat_template_ != nullptr; }

  StatusOr<std::vector<TokenId>> RenderChat(const Conversation& conversation) const override {
    if (chat_template_ == nullptr) {
      return FailedPrecondition("the model file has no chat template: use completions, or a model made for chat");
    }
    ChatTemplate::Variables variables = ConversationVariables(conversation);
    // An id without a spelling leaves "".
    variables.emplace("bos_token", SpellingOf(tokenizer_->bos()));
    variables.emplace("eos_token", SpellingOf(tokenizer_->eos()));
    MR_ASSIGN_OR_RETURN(const std::vector<Segment> segments,
                        chat_template_->Render(std::move(variables), conversation.now_unix_s));
    return WithBos(tokenizer_->Encode(segments));
  }

  std::vector<TokenId> EncodeText(std::string_view text) const override {
    std::vector<TokenId> ids = WithBos(tokenizer_->Encode(text, SpecialText::kParse));
    if (tokenizer_->adds_eos()) ids.push_back(*tokenizer_->eos());
    return ids;
  }

 private:
  jinja::Value SpellingOf(std::optional<TokenId> id) const {
    return jinja::Value::Literal(id ? std::string(tokenizer_->TokenBytes(*id)) : std::string());
  }

  // Templates write BOS themselves or leave it to the tokenizer: once either way.
  std::vector<TokenId> WithBos(std::vector<TokenId> ids) const {
    if (tokenizer_->adds_bos() && (ids.empty() || ids.front() != *tokenizer_->bos())) {
      ids.insert(ids.begin(), *tokenizer_->bos());
    }
    return ids;
  }

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const ChatTemplate> chat_template_;
};

}  // namespace

StatusOr<std::shared_ptr<const ModelRecipe>> ModelRecipe::Create(TokenizerSpec spec, std::string_view chat_template) {
  MR_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Create(std::move(spec)));
  std::shared_ptr<const ChatTemplate> compiled;
  if (!chat_template.empty()) {
    MR_ASSIGN_OR_RETURN(compiled, ChatTemplate::Compile(chat_template));
  }
  return std::shared_ptr<const ModelRecipe>(
      std::make_shared<TemplatedRecipe>(std::move(tokenizer), std::move(compiled)));
}

}  // namespace millrace::recipe
