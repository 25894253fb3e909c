#include "common/http/sse_reader.h"

#include <utility>

namespace millrace::http {

bool SseReader::EndLine(const std::function<bool(std::string_view data)>& on_event) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (!std::exchange(has_data_, false)) return true;
    return on_event(std::exchange(data_, {}));
  }
  std::string_view text = line;
  const std::string_view field = text.substr(0, text.find(':'));
  if (field != "data") return true;
  text.remove_prefix(field.size());
  if (text.starts_with(':')) text.remove_prefix(1);
  if (text.starts_with(' ')) text.remove_prefix(1);
  if (std::exchange(has_data_, true)) data_ += '\n';
  data_ += text;
  return true;
}

bool SseReader::Feed(std::string_view bytes, const std::function<bool(std::string_view data)>& on_event) {
  for (const char c : bytes) {
    if (stopped_) return false;
    const bool after_return = std::exchange(last_was_return_, c == '\r');
    if (c == '\n' && after_return) continue;  // the second half of \r\n
    if (c != '\n' && c != '\r') {
      line_ += c;
    } else if (!EndLine(on_event)) {
      stopped_ = true;
    }
  }
  return !stopped_;
}

}  // namespace millrace::http
