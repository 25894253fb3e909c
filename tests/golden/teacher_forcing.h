#pragma once
// The engine's logits at every position of given texts, each text fed its own tokens.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "common/engine/backend.h"
#include "common/engine/cpu_backend.h"

namespace millrace::test {

// Ids divided by spaces, one text a line.
inline std::vector<std::vector<int32_t>> ReadTokenLines(const std::string& path) {
  std::vector<std::vector<int32_t>> texts;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::vector<int32_t>& ids = texts.emplace_back();
    for (int32_t id = 0; words >> id;) ids.push_back(id);
  }
  return texts;
}

inline uint32_t BlocksOfTexts(const std::vector<std::vector<int32_t>>& texts) {
  uint32_t blocks = 0;
  for (const auto& text : texts) blocks += kv::BlocksFor(text.size());
  return blocks;
}

using LogitsSink = std::function<void(size_t text, size_t position, std::span<const float> logits)>;

// One token of each text a step; needs BlocksOfTexts(texts) blocks.
inline Status TeacherForce(engine::Backend& backend, const std::vector<std::vector<int32_t>>& texts,
                           const LogitsSink& sink) {
  std::vector<std::vector<kv::BlockIndex>> blocks;
  size_t longest = 0;
  kv::BlockIndex next = 0;
  for (const auto& text : texts) {
    auto& own = blocks.emplace_back();
    for (uint32_t i = 0; i < kv::BlocksFor(text.size()); ++i) own.push_back(next++);
    longest = std::max(longest, text.size());
  }
  for (size_t position = 0; position < longest; ++position) {
    std::vector<engine::SequenceStep> steps;
    std::vector<size_t> of_text;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (position >= texts[i].size()) continue;
      steps.push_back({.tokens = std::span(texts[i]).subspan(position, 1),
                       .start = static_cast<uint32_t>(position),
                       .blocks = blocks[i],
                       .need_logits = true});
      of_text.push_back(i);
    }
    MR_RETURN_IF_ERROR(backend.Step(steps, nullptr));
    for (size_t k = 0; k < of_text.size(); ++k) sink(of_text[k], position, backend.logits()[k]);
  }
  return OkStatus();
}

}  // namespace millrace::test
