#include "common/engine/cpu/weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace millrace::engine::cpu {
namespace {

constexpr uint64_t kReadBytes = uint64_t{4} << 20;

}  // namespace

Memory::~Memory() {
  watch_ = nullptr;
  if (data_ != nullptr) munmap(data_, size_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      watch_(std::move(other.watch_)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(watch_, other.watch_);
  return *this;
}

StatusOr<Memory> Memory::Allocate(uint64_t bytes) {
  Memory memory;
  memory.size_ = std::max<uint64_t>(bytes, 1);
  void* p = mmap(nullptr, memory.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return ErrnoStatus(errno, "allocating " + std::to_string(bytes) + " bytes");
  madvise(p, memory.size_, MADV_HUGEPAGE);
  memory.data_ = static_cast<std::byte*>(p);
  return memory;
}

StatusOr<Memory> Memory::Map(int descriptor, uint64_t bytes, const std::string& path) {
  Memory memory;
  memory.size_ = bytes;
  void* p = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (p == MAP_FAILED) return ErrnoStatus(errno, "mapping " + std::to_string(bytes) + " bytes");
  memory.data_ = static_cast<std::byte*>(p);
  memory.watch_ = std::make_unique<MappedFileWatch>(p, bytes, path);
  return memory;
}

Weights::Weights(WeightIndex index, Memory memory, uint64_t offset) : memory_(std::move(memory)) {
  for (WeightIndex::Entry& entry : index.entries) {
    tensors_.emplace(std::move(entry.name), PackedTensor{entry.shape, memory_.data() + offset + entry.offset});
  }
}

const PackedTensor* Weights::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

StatusOr<WeightIndex> IndexTensors(const model::GgufFile& file, std::span<const std::string> names) {
  WeightIndex index;
  for (const std::string& name : names) {
    const model::Tensor* tensor = file.Find(name);
    if (tensor == nullptr) return InvalidArgument(file.path() + ": the tensor " + name + " is missing");
    MR_ASSIGN_OR_RETURN(const TensorShape shape, ShapeFor(*tensor));
    index.entries.push_back({name, shape, index.bytes});
    index.bytes += (shape.bytes() + 63) / 64 * 64;
  }
  return index;
}

Status PackTensors(const model::GgufFile& file, const WeightIndex& index, std::byte* out,
                   const PackProgress& progress) {
  std::vector<std::byte> rows;
  for (const WeightIndex::Entry& entry : index.entries) {
    const model::Tensor& tensor = *file.Find(entry.name);
    const size_t row_bytes = tensor.row_bytes();
    const auto step = static_cast<uint32_t>(std::max<uint64_t>(kReadBytes / row_bytes / kPanelRows, 1) * kPanelRows);
    for (uint32_t first = 0; first < entry.shape.rows; first += step) {
      const uint32_t count = std::min(step, entry.shape.rows - first);
      rows.resize(count * row_bytes);
      MR_RETURN_IF_ERROR(file.ReadRows(tensor, first, count, rows));
      PackRows(entry.shape, rows, first, count, out + entry.offset);
    }
    if (progress) progress(entry.offset + entry.shape.bytes(), index.bytes);
  }
  return file.CheckUnchanged();
}

}  // namespace millrace::engine::cpu
