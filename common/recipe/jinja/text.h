#pragma once
// A string of the template language that remembers, byte by byte, what came from the template and what is content.

#include <string>
#include <string_view>
#include <vector>

#include "common/recipe/segment.h"

namespace millrace::recipe::jinja {

// Well-formed UTF-8. Every operation carries the marks along.
class Text {
 public:
  Text() = default;
  static Text Literal(std::string bytes) { return Text(std::move(bytes), false); }
  static Text Content(std::string bytes) { return Text(std::move(bytes), true); }

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool is_content(size_t at) const { return !marks_.empty() && marks_[at] != kLiteral; }

  void Append(const Text& other) { AppendPart(other, 0, other.size()); }
  void Append(std::string_view bytes, bool is_content);
  void AppendPart(const Text& other, size_t start, size_t count);
  Text Part(size_t start, size_t count) const;

  std::vector<Segment> ToSegments() const;

 private:
  static constexpr char kLiteral = 0;
  static constexpr char kContent = 1;

  Text(std::string bytes, bool is_content) : bytes_(std::move(bytes)) {
    if (is_content) marks_.assign(bytes_.size(), kContent);
  }

  std::string bytes_;
  std::string marks_;  // one a byte, or empty when all is literal
};

}  // namespace millrace::recipe::jinja
