#pragma once
// Reads a text/event-stream body (WHATWG HTML, 9.2): bytes in any pieces, the data of each event out.

#include <functional>
#include <string>
#include <string_view>

namespace millrace::http {

// Not thread-safe.
class SseReader {
 public:
  // Calls `on_event` with the data of each event that `bytes` completes (its data lines joined by a newline). Events
  // without data, comments and other fields are skipped. False from `on_event` stops: the rest is dropped and Feed
  // returns false, as every later one does.
  bool Feed(std::string_view bytes, const std::function<bool(std::string_view data)>& on_event);

 private:
  bool EndLine(const std::function<bool(std::string_view data)>& on_event);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool last_was_return_ = false;
  bool stopped_ = false;
};

}  // namespace millrace::http
