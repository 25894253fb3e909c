#include "common/recipe/jinja/text.h"

namespace millrace::recipe::jinja {

void Text::Append(std::string_view bytes, bool is_content) {
  if (is_content || !marks_.empty()) {
    marks_.resize(bytes_.size(), kLiteral);
    marks_.append(bytes.size(), is_content ? kContent : kLiteral);
  }
  bytes_ += bytes;
}

void Text::AppendPart(const Text& other, size_t start, size_t count) {
  if (other.marks_.empty()) {
    Append(std::string_view(other.bytes_).substr(start, count), false);
    return;
  }
  marks_.resize(bytes_.size(), kLiteral);
  marks_.append(other.marks_, start, count);
  bytes_.append(other.bytes_, start, count);
}

Text Text::Part(size_t start, size_t count) const {
  Text part;
  part.AppendPart(*this, start, count);
  return part;
}

std::vector<Segment> Text::ToSegments() const {
  std::vector<Segment> segments;
  for (size_t start = 0; start < size();) {
    size_t end = start + 1;
    while (end < size() && is_content(end) == is_content(start)) ++end;
    segments.push_back({bytes_.substr(start, end - start), is_content(start)});
    start = end;
  }
  return segments;
}

}  // namespace millrace::recipe::jinja
