// The packed file: Header, then the index (one text line a tensor), zeros up to a multiple of 4096, then the tensors.
#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/log.h"
#include "common/engine/cpu/weights.h"
#include "common/model/cache_dir.h"

namespace millrace::engine::cpu {
namespace {

constexpr std::array<char, 8> kMagic = {'M', 'R', 'W', 'E', 'I', 'G', 'H', 'T'};
constexpr uint64_t kAlignment = 4096;

struct Header {
  std::array<char, 8> magic;
  uint32_t packing_version;
  uint32_t index_crc;
  uint64_t index_bytes;
  uint64_t data_offset;
  uint64_t data_bytes;
  uint32_t data_crc;
  uint32_t header_crc;  // of all fields before
};
static_assert(sizeof(Header) == 48);

uint32_t HeaderCrc(const Header& header) { return Crc32c(&header, offsetof(Header, header_crc)); }

std::string IndexText(const WeightIndex& index, const std::string& digest) {
  std::string text = digest + "\n";
  for (const WeightIndex::Entry& entry : index.entries) {
    const TensorShape& s = entry.shape;
    text += entry.name;
    for (uint64_t field : {uint64_t(s.storage), uint64_t(s.packing), uint64_t(s.type), uint64_t{s.rows},
                           uint64_t{s.cols}, s.part_bytes, entry.offset}) {
      text += " " + std::to_string(field);
    }
    text += "\n";
  }
  return text;
}

Header HeaderFor(const std::string& index_text, uint64_t data_bytes, uint32_t data_crc) {
  Header header{};
  header.magic = kMagic;
  header.packing_version = kPackingVersion;
  header.index_crc = Crc32c(index_text.data(), index_text.size());
  header.index_bytes = index_text.size();
  header.data_offset = (sizeof(Header) + index_text.size() + kAlignment - 1) / kAlignment * kAlignment;
  header.data_bytes = data_bytes;
  header.data_crc = data_crc;
  header.header_crc = HeaderCrc(header);
  return header;
}

// kNotFound when absent, kDataLoss when damaged or of another index.
StatusOr<Weights> MapPacked(const std::string& path, const WeightIndex& index, const std::string& digest) {
  const model::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, "opening " + path);
  Header header{};
  MR_RETURN_IF_ERROR(model::ReadExactly(file.get(), 0, std::as_writable_bytes(std::span(&header, 1)), path));
  const std::string text = IndexText(index, digest);
  const Header wanted = HeaderFor(text, index.bytes, header.data_crc);
  if (std::memcmp(&header, &wanted, sizeof(header)) != 0) return DataLoss(path + " has another header");
  std::string found(text.size(), '\0');
  MR_RETURN_IF_ERROR(model::ReadExactly(file.get(), sizeof(Header), std::as_writable_bytes(std::span(found)), path));
  if (found != text) return DataLoss(path + " has another index");
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "examining " + path);
  const uint64_t bytes = header.data_offset + header.data_bytes;
  if (static_cast<uint64_t>(info.st_size) != bytes) {
    return DataLoss(path + " has " + std::to_string(info.st_size) + " bytes instead of " + std::to_string(bytes));
  }
  MR_ASSIGN_OR_RETURN(Memory memory, Memory::Map(file.get(), bytes, path));
  if (Crc32c(memory.data() + header.data_offset, header.data_bytes) != header.data_crc) {
    return DataLoss(path + " fails its checksum");
  }
  Weights weights(index, std::move(memory), header.data_offset);
  weights.MarkShared();
  return weights;
}

Status WritePacked(const std::string& dir, const std::string& name, const std::string& index_text,
                   std::span<const std::byte> data) {
  const Header header = HeaderFor(index_text, data.size(), Crc32c(data.data(), data.size()));
  const std::vector<std::byte> padding(header.data_offset - sizeof(header) - index_text.size());
  const std::array<std::span<const std::byte>, 4> pieces = {std::as_bytes(std::span(&header, 1)),
                                                            std::as_bytes(std::span(index_text)), padding, data};
  return model::WriteCacheFile(dir, name, pieces);
}

}  // namespace

StatusOr<Weights> LoadWeights(const model::GgufFile& file, std::span<const std::string> names,
                              const WeightOptions& options) {
  MR_ASSIGN_OR_RETURN(WeightIndex index, IndexTensors(file, names));
  const std::string name = options.model_digest + ".v" + std::to_string(kPackingVersion) + ".weights";
  const std::string path = options.cache_dir + "/" + name;
  if (!options.cache_dir.empty()) {
    StatusOr<Weights> mapped = MapPacked(path, index, options.model_digest);
    if (mapped.ok()) return mapped;
    if (mapped.status().code() != Code::kNotFound) {
      Log(LogLevel::kWarning, "packed_weights_rebuilt", {{"reason", mapped.status().message()}});
    }
  }
  Log(LogLevel::kInfo, "packing_weights", {{"model", file.path()}, {"bytes", index.bytes}});
  MR_ASSIGN_OR_RETURN(Memory memory, Memory::Allocate(index.bytes));
  MR_RETURN_IF_ERROR(PackTensors(file, index, memory.data(), options.progress));
  if (!options.cache_dir.empty()) {
    const Status written = WritePacked(options.cache_dir, name, IndexText(index, options.model_digest),
                                       {memory.data(), static_cast<size_t>(index.bytes)});
    StatusOr<Weights> mapped = written.ok() ? MapPacked(path, index, options.model_digest) : written;
    if (mapped.ok()) return mapped;
    Log(LogLevel::kWarning, "packed_weights_private", {{"reason", mapped.status().message()}, {"bytes", index.bytes}});
  }
  return Weights(std::move(index), std::move(memory), 0);
}

}  // namespace millrace::engine::cpu
