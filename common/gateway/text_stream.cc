#include "common/gateway/text_stream.h"

#include <utility>

namespace millrace::gateway {

TextStream::TextStream(std::shared_ptr<const recipe::Tokenizer> tokenizer, const std::vector<std::string>& stops,
                       bool include_stop)
    : detokenizer_(std::move(tokenizer)), matcher_(stops, include_stop) {}

std::string TextStream::Push(request::TokenId id, bool ends_text) {
  if (ends_text || stopped()) return "";
  return matcher_.Push(detokenizer_.Push(id));
}

std::string TextStream::Flush() {
  if (stopped()) return "";
  std::string text = matcher_.Push(detokenizer_.Flush());
  return stopped() ? text : text + matcher_.Flush();
}

}  // namespace millrace::gateway
