#pragma once
// The header of a GGUF file as data: metadata and tensor descriptions, all checked against the size of the file.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/gguf.h"

namespace millrace::model {

struct GgufHeader {
  uint32_t version = 0;
  std::map<std::string, MetadataValue> metadata;
  std::vector<Tensor> tensors;  // in file order, offsets absolute
};

// Fills the whole span from a place in the file that lies inside it.
using ReadAt = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

// Memory used is at most a small multiple of file_bytes, whatever the counts in the file say.
StatusOr<GgufHeader> ParseGgufHeader(uint64_t file_bytes, const ReadAt& read);

}  // namespace millrace::model
